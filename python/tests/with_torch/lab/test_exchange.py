"""Models trained here, in transformers."""

import json
import subprocess
from pathlib import Path

import pytest
import torch
from lab_program import RMSNORM, SMALL, refusal, succeed
from safetensors.torch import load_file
from transformers import GPT2LMHeadModel, LlamaForCausalLM

EQUAL = 1e-5  # of logits, f32
PROMPT = "Call me Ishmael. Some years"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("lab")


# Every option of config.json that changes the function has a value here that is not transformers' default.
MODELS = {
    "llama": (LlamaForCausalLM, ("--heads", 4, "--key-value-heads", 2, "--epsilon", 1e-3)),
    "untied": (LlamaForCausalLM, ("--heads", 4, "--key-value-heads", 1, "--untied", "--hidden", 80)),
    "gpt2": (GPT2LMHeadModel, ("--heads", 3, "--epsilon", 1e-3)),
}


@pytest.fixture(scope="module", params=MODELS)
def trained(request, folder):
    """A trained model: its class, its folder, and that of the run."""
    model_class, options = MODELS[request.param]
    out, run = folder / request.param, folder / f"{request.param}-run"
    name = "gpt2" if request.param == "gpt2" else "llama"
    report = succeed("train", "--model", name, *options, *SMALL, "--steps", 25, "--checkpoint", run, "--out", out)
    assert report["steps"][-1]["loss"] < report["steps"][0]["loss"] - 1
    return model_class, out, run, report


def load(model_class, out):
    model, info = model_class.from_pretrained(out, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    assert model.dtype == torch.float32
    return model.eval()


@torch.no_grad()
def test_transformers_has_the_held_out_loss(trained):
    model_class, out, _, report = trained
    model = load(model_class, out)
    text = (Path(__file__).parents[4] / "lab/data/moby-dick.txt").read_bytes()
    held_out = text[len(text) - len(text) // 10 :]
    rows = (len(held_out) - 1) // 32
    parts, batch = -(-rows // 8), 8
    losses = []
    for part in (i * parts // 8 for i in range(8)):
        for row in range(part * batch, min((part + 1) * batch, rows)):
            tokens = torch.tensor(list(held_out[row * 32 : row * 32 + 33]))[None]
            logits = model(tokens[:, :-1]).logits
            losses.append(torch.nn.functional.cross_entropy(logits[0], tokens[0, 1:]))
    assert abs(torch.stack(losses).mean().item() - report["evaluations"][-1]["held_out_loss"]) < EQUAL


@torch.no_grad()
def test_logits_are_those_of_transformers(trained):
    model_class, out, _, _ = trained
    tokens = torch.tensor([list(PROMPT.encode())])
    ours = succeed("generate", out, "--prompt", PROMPT, "--tokens", 0, "--logits")["logits"]
    theirs = load(model_class, out)(tokens).logits[0]
    assert (torch.tensor(ours, dtype=torch.float64) - theirs).abs().max() < EQUAL


@torch.no_grad()
def test_it_continues_a_sentence_as_transformers_does(trained):
    model_class, out, _, _ = trained
    report = succeed("generate", out, "--prompt", "Call me ", "--tokens", 20, "--threads", 1)
    tokens = torch.tensor([list(b"Call me ")])
    greedy = load(model_class, out).generate(
        tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=20, do_sample=False, pad_token_id=0
    )
    assert report["text"] == bytes(greedy[0, 8:].tolist()).decode(errors="replace")
    assert len(report["text"]) > 0


def test_export_writes_what_out_did(trained, folder):
    _, out, run, _ = trained
    exported = folder / f"{out.name}-exported"
    succeed("export", "--checkpoint", run, "--out", exported)
    assert json.loads((exported / "config.json").read_text()) == json.loads((out / "config.json").read_text())
    ours, theirs = load_file(exported / "model.safetensors"), load_file(out / "model.safetensors")
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert "exists" in refusal(4, "export", "--checkpoint", run, "--out", exported)


def test_the_converter_takes_a_gpt2_trained_here(trained, folder):
    model_class, out, _, _ = trained
    if model_class is not GPT2LMHeadModel:
        return  # RMSNorm already
    if not Path(RMSNORM).exists():
        pytest.skip(f"{RMSNORM} is not built")
    converted = folder / "gpt2-rms"
    subprocess.run([RMSNORM, "convert", out, converted], check=True, timeout=60, capture_output=True)
    subprocess.run([RMSNORM, "verify", out, converted], check=True, timeout=60, capture_output=True)


def test_what_transformers_cannot_express_is_refused_before_training(folder):
    for options in (("--norm", "layer_norm"), ("--placement", "post"), ("--qk-norm",)):
        message = refusal(2, "train", *SMALL, "--steps", 1000000, *options, "--out", folder / "never")
        assert "LlamaForCausalLM" in message
    assert not (folder / "never").exists()

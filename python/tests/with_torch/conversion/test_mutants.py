"""Wrong conversions: `verify` finds each, and where a forward pass can show it, so does the RMSNorm class."""

import json

import pytest
import torch

from checkpoints import build, distance, run
from decoders import DECODERS
from program import OUTSIDE_BUDGET, call, load_rms, succeed
from saving import load, save, set_keys, set_tensors, tensors

CASES = {case.name: case for case in DECODERS}


def restore(*names):
    """The tensors as they were before."""

    def change(folder, original):
        def put(held):
            held.update({name: original[name] for name in names if name in held})

        set_tensors(folder, put)

    return change


def put(name, value):
    """Another value of a tensor, from its old one and the original's tensors."""

    def change(folder, original):
        def set_one(held):
            if name in held:
                held[name] = value(held[name], original)

        set_tensors(folder, set_one)

    return change


def restore_all(folder, original):
    restore(*(name for name in original if not name.endswith("lm_head.weight")))(folder, original)


def larger_epsilon(folder, original):
    set_keys(folder, layer_norm_epsilon=1e-2)
    path = folder / "rmsnorm.json"
    settings = json.loads(path.read_text())
    for site in settings["sites"]:
        site["epsilon"] = 1e-2
    path.write_text(json.dumps(settings))


def tie_again(folder, original):
    """Without the stored head: transformers 5 reads one that is there, tied or not."""
    set_keys(folder, tie_word_embeddings=True)
    set_tensors(folder, lambda held: held.pop("lm_head.weight", None))


def over_inputs(held, original):
    """Of a [in, out] matrix the mean over the inputs is taken instead of that over the outputs."""
    weight = original["transformer.h.0.attn.c_proj.weight"]
    return weight - weight.mean(0)


GPT2 = {
    "one bias not centred": restore("transformer.h.1.mlp.c_proj.bias"),
    "one weight not centred": restore("transformer.h.0.attn.c_proj.weight"),
    "positions not centred": restore("transformer.wpe.weight"),
    "wrong axis": put("transformer.h.0.attn.c_proj.weight", over_inputs),
    "head centred": put("lm_head.weight", lambda held, original: held - held.mean(1, keepdim=True)),
    "head left tied": tie_again,
    "another epsilon": larger_epsilon,
    "final bias dropped": put("transformer.ln_f.bias", lambda held, original: torch.zeros_like(held)),
    "nothing centred": restore_all,
}
NEMOTRON = {
    "weight for 1 + weight": put("model.layers.0.input_layernorm.weight", lambda held, original: held + 1),
    "bias forgotten": put("model.layers.1.post_attention_layernorm.bias", lambda held, original: held * 0),
}
MUTANTS = [("gpt2", name, change) for name, change in GPT2.items()]
MUTANTS += [("nemotron", name, change) for name, change in NEMOTRON.items()]


@pytest.mark.parametrize(("case_name", "change"), [pytest.param(c, m, id=f"{c}: {n}") for c, n, m in MUTANTS])
def test_is_caught(case_name, change, tmp_path):
    case = CASES[case_name]
    source, out = tmp_path / "source", tmp_path / "out"
    save(build(case), case, source, "f32")
    succeed("convert", source, out)
    succeed("verify", source, out)
    expected = run(load(case.model_class, source), case)
    assert distance(run(load_rms(case, out), case), expected) < 1e-5
    change(out, tensors(source))
    assert call("verify", source, out).returncode == OUTSIDE_BUDGET
    assert distance(run(load_rms(case, out), case), expected) > 1e-3


def test_mask_buffer_taken_for_a_bias(tmp_path):
    """Old files hold the causal mask as attn.bias; no class reads it any more, so only `verify` can see it."""
    case = CASES["gpt2"]
    source, out = tmp_path / "source", tmp_path / "out"
    save(build(case), case, source, "f32")
    mask = torch.tril(torch.ones(16, 16)).reshape(1, 1, 16, 16)

    def add_masks(held):
        for i in range(case.config["n_layer"]):
            if f"transformer.h.{i}.attn.c_attn.weight" in held:
                held[f"transformer.h.{i}.attn.bias"] = mask.clone()
                held[f"transformer.h.{i}.attn.masked_bias"] = torch.tensor(-1e4)

    set_tensors(source, add_masks)
    succeed("convert", source, out)
    succeed("verify", source, out)
    assert tensors(out)["transformer.h.1.attn.bias"].equal(mask)
    put("transformer.h.1.attn.bias", lambda held, original: held - held.mean())(out, {})
    assert call("verify", source, out).returncode == OUTSIDE_BUDGET

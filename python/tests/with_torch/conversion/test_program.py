"""modeling_rmsnorm.py: Auto classes, saving again, training, this library's kernels."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers

from checkpoints import build, distance, run
from decoders import DECODERS
from encoders import ENCODERS
from program import load_rms, norms, rms_class, succeed
from saving import load, save

CASES = {case.name: case for case in DECODERS + ENCODERS}
AUTO = {
    "gpt2": "AutoModelForCausalLM",
    "whisper base": "AutoModel",
    "mbart": "AutoModelForSeq2SeqLM",
    "modernbert": "AutoModelForMaskedLM",
    "vit": "AutoModelForImageClassification",
    "wav2vec2": "AutoModelForCTC",
    "clip": "AutoModel",
}


def converted(name, folder, dtype="f64", *options):
    case = CASES[name]
    save(build(case), case, folder / "source", dtype)
    succeed("convert", folder / "source", folder / "out", *options)
    return case, folder / "source", folder / "out"


@pytest.mark.parametrize(("name", "auto"), AUTO.items())
def test_auto_class(name, auto, tmp_path):
    case, source, out = converted(name, tmp_path)
    auto = getattr(transformers, auto)
    rms = load(auto, out, case.heads, trust_remote_code=True)
    assert norms(rms)["rms"] == case.rms
    expected = run(load(case.model_class, source), case)
    assert distance(run(rms, case), expected) < 1e-12
    stock = load(auto, out, case.heads, trust_remote_code=False)
    assert norms(stock)["rms"] == 0
    assert distance(run(stock, case), expected) < 1e-12


@pytest.mark.parametrize("name", ["gpt2", "bloom", "vit", "clip vision", "modernbert"])
def test_saved_again(name, tmp_path):
    case, _, out = converted(name, tmp_path)
    first = load_rms(case, out)
    first.save_pretrained(tmp_path / "again")
    again = load(rms_class(case.model, out), tmp_path / "again", case.heads)
    assert norms(again) == norms(first)
    assert distance(run(again, case), run(first, case)) < 1e-15


def test_saved_again_through_an_auto_class(tmp_path):
    case, _, out = converted("gpt2", tmp_path)
    first = load(transformers.AutoModelForCausalLM, out, trust_remote_code=True)
    first.save_pretrained(tmp_path / "again")
    again = load(transformers.AutoModelForCausalLM, tmp_path / "again", trust_remote_code=True)
    assert norms(again)["rms"] == case.rms
    assert distance(run(again, case), run(first, case)) < 1e-15


def test_gradients_are_those_of_the_layer_norm_class(tmp_path):
    """Of the norms' own parameters; those of the writers differ by what the centring takes away."""
    case, _, out = converted("gpt2", tmp_path)
    gradients = []
    for model in (load(case.model_class, out), load_rms(case, out)):
        inputs = case.inputs(model.config)
        model(**inputs, labels=inputs["input_ids"]).loss.backward()
        gradients.append({n: p.grad for n, p in model.named_parameters() if "ln_" in n or "c_fc" in n})
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        assert torch.allclose(gradients[1][name], gradient, rtol=1e-9, atol=1e-12), name


def test_generates_the_same_tokens(tmp_path):
    case, source, out = converted("gpt2", tmp_path, "f32")
    prompt = torch.tensor([[5, 6, 7]])
    tokens = [
        model.generate(prompt, max_new_tokens=8, do_sample=False, pad_token_id=0).tolist()
        for model in (load(case.model_class, source), load_rms(case, out))
    ]
    assert tokens[0] == tokens[1]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_in_its_own_type(dtype, tmp_path):
    """Computed in the narrow type, too, it is as near to the f64 result as the original."""
    case, source, out = converted("gpt_neox", tmp_path, {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}[dtype])
    exact = run(load(case.model_class, source), case)["logits"]
    inputs = case.inputs(load(case.model_class, source).config)
    errors = []
    for model_class, folder in ((case.model_class, source), (rms_class(case.model, out), out)):
        model = model_class.from_pretrained(folder, dtype=getattr(torch, dtype), attn_implementation="eager").eval()
        with torch.no_grad():
            errors.append((model(**inputs).logits.double() - exact).norm() / exact.norm())
    assert errors[1] <= 2 * errors[0]


KERNELS = """
import sys, torch, transformers
import rmsnorm.torch
calls = []

def watch(name):
    function = getattr(rmsnorm.torch, name)

    def watched(*arguments, **options):
        calls.append(name)
        return function(*arguments, **options)

    setattr(rmsnorm.torch, name, watched)

watch("rms_norm")
watch("center")
torch.set_default_dtype(torch.float64)
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float64, trust_remote_code=True)
with torch.no_grad():
    logits = model.eval()(torch.arange(3, 12)[None]).logits
torch.save({"logits": logits, "calls": sorted(set(calls)), "count": len(calls)}, sys.argv[2])
"""


def test_with_this_librarys_kernels(tmp_path):
    case, source, out = converted("gpt2", tmp_path, "f64", "--keep-tie")
    (tmp_path / "with_kernels.py").write_text(KERNELS)
    environment = {**os.environ, "RMSNORM_KERNELS": "1"}
    line = [sys.executable, str(tmp_path / "with_kernels.py"), str(out), str(tmp_path / "result.pt")]
    subprocess.run(line, env=environment, check=True, timeout=300)
    result = torch.load(tmp_path / "result.pt")
    assert result["calls"] == ["center", "rms_norm"]
    assert result["count"] == case.rms + 1
    with torch.no_grad():
        expected = load(case.model_class, source)(torch.arange(3, 12)[None]).logits
    assert (result["logits"] - expected).norm() < 1e-12 * expected.norm()


def test_without_its_settings(tmp_path):
    case, _, out = converted("gpt2", tmp_path)
    Path(out / "rmsnorm.json").unlink()
    with pytest.raises(OSError, match=r"rmsnorm\.json"):
        load_rms(case, out)

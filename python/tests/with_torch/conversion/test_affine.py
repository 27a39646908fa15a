"""Biases and weights of norms folded into their readers, in every family that lets them."""

import json

import pytest

from checkpoints import build, distance, run
from decoders import DECODERS
from encoders import ENCODERS
from program import call, load_rms, succeed
from saving import load, save

CASES = {case.name: case for case in DECODERS + ENCODERS}
MODES = {
    "bias": ("--affine", "bias", "--untie"),
    "full": ("--affine", "full", "--untie"),
    "bias by the program": ("--affine", "bias", "--untie", "--target", "hf"),
}
# The norm's output is the model's, so nothing may be taken from it (R06).
RETURNED = (
    "gpt2 base",
    "whisper base",
    "vit base",
    "siglip text",
    "siglip vision",
)
# Some reader has no bias, and its class makes none (R05); the program beside the checkpoint does.
WITHOUT_BIAS = (
    "bloom",
    "bloom no prefix",
    "clip",
    "clip text projected",
    "clip vision",
    "codegen",
    "falcon alibi",
    "falcon one norm",
    "falcon sequential",
    "falcon two named one",
    "falcon two norms",
    "gpt2",
    "gpt2 cross attention",
    "gpt2 no prefix",
    "gpt2 token types",
    "gpt2 untied",
    "gpt_bigcode",
    "gpt_bigcode many heads",
    "gpt_neo",
    "gpt_neox",
    "gpt_neox new name",
    "gpt_neox no biases",
    "gpt_neox sequential",
    "gptj",
    "m2m_100",
    "nemotron",
    "opt",
    "opt no biases",
    "opt no prefix",
    "opt projected",
    "persimmon",
    "persimmon no qk",
    "stablelm",
    "stablelm parallel",
    "starcoder2",
    "starcoder2 no biases",
    "whisper",
    "xglm",
)


def refused(name, mode):
    if name in RETURNED:
        return "R06"
    return "R05" if name in WITHOUT_BIAS and mode != "bias by the program" else None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_same_function(name, mode, tmp_path):
    case = CASES[name]
    source, out = tmp_path / "source", tmp_path / "out"
    save(build(case), case, source, "f64")
    done = call("convert", source, out, *MODES[mode])
    code = done.stderr.removeprefix("rmsnorm: ")[:3] if done.returncode else None
    assert code == refused(name, mode), done.stderr
    if code is not None:
        return
    succeed("verify", source, out)
    expected = run(load(case.model_class, source), case)
    rms = load_rms(case, out)
    assert distance(run(rms, case), expected) < 1e-12
    settings = json.loads((out / "rmsnorm.json").read_text())
    if mode != "bias by the program":
        assert settings["biases"] == []
        assert distance(run(load(case.model_class, out, case.heads), case), expected) < 1e-12

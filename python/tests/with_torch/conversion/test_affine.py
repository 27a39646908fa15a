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
# What is refused, and why.
REFUSED: dict[tuple[str, str], str] = {}


def refused(name, mode):
    return REFUSED.get((name, mode))


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

"""OLMo, whose norms have no parameters, as a checkpoint of the stock Llama class."""

import pytest
import transformers

from checkpoints import build, distance, run
from decoders import DECODERS
from program import refusal, succeed
from saving import load, save

CASES = {case.name: case for case in DECODERS}


@pytest.mark.parametrize("name", ["olmo", "olmo tied"])
def test_same_function(name, tmp_path):
    case = CASES[name]
    save(build(case), case, tmp_path / "source", "f64")
    succeed("convert", tmp_path / "source", tmp_path / "out", "--target", "llama")
    succeed("verify", tmp_path / "source", tmp_path / "out")
    llama = load(transformers.AutoModelForCausalLM, tmp_path / "out")
    assert isinstance(llama, transformers.LlamaForCausalLM)
    assert distance(run(llama, case), run(load(case.model_class, tmp_path / "source"), case)) < 1e-12


@pytest.mark.parametrize("name", ["olmo clipped", "gpt2"])
def test_others_are_refused(name, tmp_path):
    case = CASES[name]
    save(build(case), case, tmp_path / "source", "f32")
    assert refusal("convert", tmp_path / "source", tmp_path / "out", "--target", "llama").startswith("R12")

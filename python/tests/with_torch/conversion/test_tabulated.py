"""A norm behind the token table, for a class without one: the table holds the norm's outputs, centred."""

import json

import pytest
import torch
import transformers

from checkpoints import build, distance, generator, run
from decoders import DECODERS
from program import OUTSIDE_BUDGET, ROOT, call, refusal, succeed
from saving import TYPES, load, save, set_tensors, tensors
from test_families import EXACT, ROUNDINGS

CASES = {case.name: case for case in DECODERS}
NORM, EPSILON, WIDTH = "model.embed_norm", 1e-3, 16
TABLE = "model.embed_tokens.weight"


@pytest.fixture
def recipe(tmp_path):
    """That of OLMo, for models with a norm more."""
    own = json.loads((ROOT / "convert/families/olmo.json").read_text())
    (stream,) = own["streams"]
    stream["entry"] = {
        "op": {"at": "layers.0", "side": "input"},
        "only_op": "the stream starts as the output of embed_norm",
        "tabulate": {"table": "embed_tokens", "norm": "embed_norm", "epsilon": EPSILON},
    }
    own["no_parameters"] = {}
    path = tmp_path / "own.json"
    path.write_text(json.dumps(own))
    return path


def parameters(dtype):
    numbers = generator("embed_norm")
    drawn = [torch.randn(WIDTH, generator=numbers, dtype=torch.float64) * 0.3 + mean for mean in (1, 0.2)]
    return dict(zip((f"{NORM}.weight", f"{NORM}.bias"), (d.to(TYPES[dtype]) for d in drawn), strict=True))


def outputs(model, case, dtype):
    """Of a model of OLMo's class with the norm behind its token table."""
    norm = torch.nn.LayerNorm(WIDTH, EPSILON, dtype=torch.float64)
    norm.weight.data, norm.bias.data = (value.double() for value in parameters(dtype).values())
    model.get_input_embeddings().register_forward_hook(lambda module, args, out: norm(out))
    return run(model, case)


def saved(name, dtype, folder):
    """OLMo's files with the norm's parameters in them."""
    case, source = CASES[name], folder / "source"
    save(build(case), case, source, dtype)
    set_tensors(source, lambda held: held.update(parameters(dtype)) if TABLE in held else None)
    return case, source


@pytest.mark.parametrize("name", ["olmo", "olmo tied"])
@pytest.mark.parametrize("dtype", ["f64", "bf16"])
def test_same_function(name, dtype, recipe, tmp_path):
    case, source = saved(name, dtype, tmp_path)
    out = tmp_path / "out"
    save(build(case), case, tmp_path / "stock", dtype)
    expected = outputs(load(case.model_class, tmp_path / "stock"), case, dtype)
    stored_once = distance(expected, outputs(build(case), case, "f64"))
    succeed("convert", source, out, "--target", "llama", "--recipe", recipe)
    succeed("verify", source, out, "--recipe", recipe)
    stored = tensors(out)
    assert not any("embed_norm" in key for key in stored)
    assert stored["lm_head.weight"].equal(tensors(source)["lm_head.weight" if name == "olmo" else TABLE])
    llama = load(transformers.LlamaForCausalLM, out)
    assert distance(run(llama, case), expected) <= (EXACT if dtype == "f64" else ROUNDINGS * stored_once)


def test_the_norm_stays_for_its_own_class(recipe, tmp_path):
    _, source = saved("olmo", "f64", tmp_path)
    succeed("convert", source, tmp_path / "out", "--recipe", recipe)
    succeed("verify", source, tmp_path / "out", "--recipe", recipe)
    before, after = tensors(source), tensors(tmp_path / "out")
    assert all(after[key].equal(before[key]) for key in (TABLE, *parameters("f64")))
    assert json.loads((tmp_path / "out/rmsnorm.json").read_text())["entry"]


def test_what_cannot_be(recipe, tmp_path):
    _, source = saved("olmo tied", "f64", tmp_path)
    options = ("--target", "llama", "--recipe", recipe)
    assert refusal("convert", source, tmp_path / "out", *options, "--keep-tie").startswith("R04")
    assert refusal("convert", source, tmp_path / "out", *options, "--entry", "op").startswith("R03")


@pytest.mark.parametrize("change", ["one row", "not centred", "the norm is there"])
def test_verify_sees(change, recipe, tmp_path):
    _, source = saved("olmo", "f64", tmp_path)
    out = tmp_path / "out"
    succeed("convert", source, out, "--target", "llama", "--recipe", recipe)

    def spoil(held):
        if TABLE not in held:
            return
        if change == "one row":
            held[TABLE][3] = held[TABLE][3].roll(1)
        elif change == "not centred":
            held[TABLE] += 0.01
        else:
            held.update(parameters("f64"))

    set_tensors(out, spoil)
    done = call("verify", source, out, "--recipe", recipe)
    assert done.returncode == OUTSIDE_BUDGET, done.stdout + done.stderr
    assert "embed" in done.stdout

"""Every family: the converted checkpoint computes the same in its own class, and in that with RMSNorm."""

import functools
import json

import pytest

from checkpoints import build, distance, run
from decoders import DECODERS
from encoders import ENCODERS
from program import ROOT, load_rms, norms, succeed
from saving import TYPES, load, save

CASES = DECODERS + ENCODERS
EXACT = 1e-12  # in f64
ROUNDINGS = 2  # in narrower types: times the error of storing the model once


@functools.lru_cache(maxsize=1)  # the types of a case follow each other
def drawn(case):
    model = build(case)
    return model, run(model, case)


def converted(case, dtype, folder):
    """The original's files, the converted ones, what the original computes, and the error of storing it once."""
    model, unrounded = drawn(case)
    source, out = folder / "source", folder / "out"
    save(model, case, source, dtype)
    succeed("convert", source, out, *case.options)
    expected = run(load(case.model_class, source), case)
    return source, out, expected, distance(expected, unrounded)


def each(cases, types):
    return [pytest.param(case, dtype, id=f"{case.name}-{dtype}") for case in cases for dtype in types]


@pytest.mark.parametrize(("case", "dtype"), each(CASES, TYPES))
def test_same_function(case, dtype, tmp_path):
    source, out, expected, stored_once = converted(case, dtype, tmp_path)
    limit = EXACT if dtype == "f64" else ROUNDINGS * stored_once
    stock = load(case.model_class, out, case.heads)
    rms = load_rms(case, out)
    assert norms(rms) == {"rms": case.rms, "kept": case.kept, "centres": case.centres}
    assert distance(run(stock, case), expected) <= limit
    assert distance(run(rms, case), expected) <= limit
    succeed("verify", source, out)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_changed_tensor_matters(case, tmp_path):
    """With any one of them as it was, the RMSNorm class computes something else: the test above would have seen it."""
    model, expected = drawn(case)
    save(model, case, tmp_path / "source", "f64")
    succeed("convert", tmp_path / "source", tmp_path / "out", *case.options)
    rms = load_rms(case, tmp_path / "out")
    before = dict(model.named_parameters())
    changed = [name for name, value in rms.named_parameters() if name in before and not value.equal(before[name])]
    assert changed
    unseen = []
    for name in changed:
        value = rms.get_parameter(name)
        kept = value.data
        value.data = before[name].data
        if distance(run(rms, case), expected) < 1e-6:
            unseen.append(name)
        value.data = kept
    assert [name for name in unseen if not name.endswith(case.unseen)] == []


def test_every_recipe_has_a_case():
    recipes = {}
    for path in (ROOT / "convert/families").glob("*.json"):
        recipe = json.loads(path.read_text())
        refused = any(rule.get("always") for rule in recipe.get("refuse", []))
        if not recipe.get("rms") and not refused:
            recipes[recipe["family"]] = set(recipe["model_types"])
    tried = {case.model_class.config_class.model_type for case in CASES}
    assert set().union(*recipes.values()) == tried

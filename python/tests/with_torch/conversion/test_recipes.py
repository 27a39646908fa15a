"""The recipes against the classes that they describe."""

import json

import pytest
import transformers

from program import ROOT

RECIPES = {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / "convert/families").glob("*.json"))}
# Of no class of transformers.
FOREIGN = {"soltrannet"}


def default(config, key):
    """The class's value of a dotted key; dictionaries and configurations alike."""
    value = config
    for part in key.split("."):
        value = value[part] if isinstance(value, dict) else getattr(value, part)
    return value


@pytest.mark.parametrize(
    ("name", "model_type"),
    [(name, kind) for name, recipe in RECIPES.items() for kind in recipe["model_types"] if kind not in FOREIGN],
)
def test_defaults_are_those_of_the_class(name, model_type):
    """A file may lack any key; what the class then takes is what the converter must take."""
    config = transformers.CONFIG_MAPPING[model_type]()
    wrong = {}
    for key, value in RECIPES[name].get("defaults", {}).items():
        expected = default(config, value["key"]) if isinstance(value, dict) else value
        try:
            found = default(config, key)
        except AttributeError:
            continue  # a key of published files that the class does not read any more
        if found != expected and not (isinstance(value, dict) and found is None):
            wrong[key] = (value, found)
    assert wrong == {}


@pytest.mark.parametrize("name", RECIPES)
def test_no_line_is_too_long(name):
    text = (ROOT / f"convert/families/{name}.json").read_text()
    assert max(map(len, text.splitlines())) <= 120
    assert RECIPES[name]["family"] == name

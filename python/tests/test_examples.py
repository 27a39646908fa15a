"""The README's lines print what the README says (that it quotes these files, ./dev test checks elsewhere)."""

import pathlib
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("name", ["from_python"])
def test_example_prints_what_stands_beside_it(name):
    program = subprocess.run([sys.executable, EXAMPLES / f"{name}.py"], capture_output=True, text=True, check=True)
    assert program.stdout == (EXAMPLES / f"{name}.txt").read_text()

"""The comparison with other libraries (./dev peers), with this library alone: what it measures, and how it judges."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

PEERS = pathlib.Path(__file__).parents[1] / "peers"
sys.path.insert(0, str(PEERS))

from peer_cases import Case, Operands  # noqa: E402
from table import summary  # noqa: E402


def run(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(PEERS), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_this_library_takes_part_in_every_case_and_is_right(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "peers.jsonl"
    done = run("--shapes", "5x333", "--threads", "1", "--peers", "ours", "--json", str(file))
    assert done.returncode == 0, done.stderr
    lines = [line for line in map(json.loads, file.read_text().splitlines()) if line.get("peer") == "rmsnorm"]
    measured = [line for line in lines if "us" in line]
    assert len(measured) == 4 * 3 * 2  # operations, types, with and without out=
    for line in measured:
        limit = {"f32": 4.5, "f16": 1.0, "bf16": 1.0}[line["type"]]
        assert line["us"] > 0
        assert line["error_ulp"] <= limit, line


@pytest.mark.parametrize("op", ["rms_norm", "layer_norm", "add_rms_norm", "rms_norm_backward"])
def test_errors_are_counted_in_ulps_of_the_type(op: str) -> None:
    operands = Operands(Case(op, "bf16", 3, 64))
    exact = np.zeros((3, 64))
    exact[operands.sample] = operands.expected
    assert operands.largest_error(exact) == 0
    assert operands.largest_error(exact.astype(ml_dtypes.bfloat16)) <= 0.5
    wrong = exact.copy()
    row, col = np.unravel_index(np.argmax(np.abs(exact)), exact.shape)
    wrong[row, col] *= 1 + 2.0**-6  # two units of the last place at the lower end of a binade, one at the upper
    assert 1 <= operands.largest_error(wrong) <= 4


def test_the_summary_sets_ours_against_the_fastest_other() -> None:
    def line(peer: str, us: float) -> dict:
        return {"op": "rms_norm", "type": "f32", "rows": 1, "cols": 2, "threads": 1, "peer": peer, "setting": "default",
                "us": us, "ratio_to_copy": 1.0, "error_ulp": 1.0}  # fmt: skip

    rows = summary([line("copy", 1), line("rmsnorm", 4), line("rmsnorm.torch", 5), line("JAX", 2), line("MLX", 9)])
    assert rows[1][3] == "JAX (default)"
    assert rows[1][5] == "0.50"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shapes", "0x5"], "shape is 0x5; it must be ROWSxCOLS"),
        (["--threads", "100000"], "threads is 100000; it must be from 1 to"),
        (["--ops", "softmax"], "invalid choice: 'softmax'"),
    ],
)
def test_wrong_arguments_are_named(arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert done.returncode != 0
    assert message in done.stderr

"""`rmsnorm-lab`, the program under test."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
PROGRAM = os.environ.get("RMSNORM_LAB_PROGRAM", str(ROOT / "build/release/rmsnorm-lab"))
RMSNORM = os.environ.get("RMSNORM_PROGRAM", str(ROOT / "build/release/rmsnorm"))
SMALL = ("--width", 48, "--layers", 2, "--context", 32, "--batch", 8, "--warm-up", 2, "--threads", 1)


def line_of(command: str, *arguments: object) -> list[str]:
    return [PROGRAM, command, *map(str, arguments)]


def call(line: list[str]) -> subprocess.CompletedProcess:
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


def succeed(command: str, *arguments: object, launcher: tuple[str, ...] = ()) -> dict:
    """The report of a call that must succeed."""
    done = call([*launcher, *line_of(command, *arguments, "--json")])
    assert done.returncode == 0, f"{done.args}\n{done.stdout}{done.stderr}"
    return json.loads(done.stdout)


def refusal(code: int, command: str, *arguments: object) -> str:
    done = call(line_of(command, *arguments))
    assert done.returncode == code, f"{done.args}: {done.returncode}\n{done.stdout}{done.stderr}"
    assert done.stderr.startswith("rmsnorm-lab: "), done.stderr
    return done.stderr

"""The command line under test, and the classes that load what it wrote."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import transformers
from transformers.dynamic_module_utils import get_class_from_dynamic_module

from checkpoints import Case
from saving import load

ROOT = Path(__file__).resolve().parents[4]
RMSNORM = os.environ.get("RMSNORM_PROGRAM", str(ROOT / "build/release/rmsnorm"))
REFUSED, OUTSIDE_BUDGET = 3, 5


def call(command: str, *arguments: object) -> subprocess.CompletedProcess:
    line = [RMSNORM, command, *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


def succeed(command: str, *arguments: object) -> dict:
    """The report of a call that must succeed."""
    done = call(command, *arguments, "--json")
    assert done.returncode == 0, f"{done.args}\n{done.stdout}{done.stderr}"
    return json.loads(done.stdout)


def refusal(command: str, *arguments: object) -> str:
    """The message of a call that must be refused; it starts with the code."""
    done = call(command, *arguments)
    assert done.returncode == REFUSED, f"{done.args}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stderr.removeprefix("rmsnorm: ")


def rms_class(model: str, folder: Path) -> type[transformers.PreTrainedModel]:
    return get_class_from_dynamic_module(f"modeling_rmsnorm.Rmsnorm{model}", str(folder))


def load_rms(case: Case, folder: Path) -> transformers.PreTrainedModel:
    return load(rms_class(case.model, folder), folder, case.heads)


def norms(model: transformers.PreTrainedModel) -> dict[str, int]:
    """How many norms and centre operations of each kind the model runs."""
    leaves = [type(m).__name__ for m in model.modules() if not any(m.children())]
    return {
        "rms": leaves.count("RMSNorm"),
        "kept": sum("LayerNorm" in name for name in leaves),
        "centres": sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()),
    }

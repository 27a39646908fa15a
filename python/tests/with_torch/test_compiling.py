"""How the operators come to be: what is cached, and what is said where they cannot be compiled."""

import os
import pathlib
import subprocess
import sys

from rmsnorm.torch import _operators


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}
    )


def test_compiled_once():
    path = _operators.compiled()
    assert path.exists() and path.parent.parent == _operators.cache_folder()
    before = path.stat().st_mtime_ns
    assert _operators.compiled() == path and path.stat().st_mtime_ns == before


def test_no_compiler(tmp_path):
    child = run("import rmsnorm.torch", RMSNORM_TORCH_CACHE=str(tmp_path), CXX="/no/such/compiler")
    assert child.returncode != 0
    assert "ImportError: rmsnorm.torch: compiler is /no/such/compiler, which is not found; it must be" in child.stderr


def test_failing_compiler(tmp_path):
    child = run("import rmsnorm.torch", RMSNORM_TORCH_CACHE=str(tmp_path), CXX="false")
    assert "ImportError: rmsnorm.torch: the operators could not be compiled" in child.stderr
    assert not list(tmp_path.rglob("*.so"))


def test_no_compiler_is_needed_once_compiled():
    child = run("import torch, rmsnorm.torch as rt; print(rt.rms_norm(torch.ones(2, 4)).shape)", CXX="/no/such")
    assert child.stdout == "torch.Size([2, 4])\n"


def test_one_openmp_runtime():
    """The threads are PyTorch's: a second runtime would have a pool of its own."""
    code = """
import torch, rmsnorm.torch
torch.set_num_threads(2)
rmsnorm.torch.rms_norm(torch.ones(4096, 1024))
print(len({line.split()[-1] for line in open("/proc/self/maps") if "libgomp" in line or "libomp" in line}))
"""
    assert run(code).stdout == "1\n"


def test_example_prints_what_stands_beside_it():
    examples = pathlib.Path(__file__).parents[3] / "examples"
    child = run((examples / "from_pytorch.py").read_text())
    assert child.stdout == (examples / "from_pytorch.txt").read_text()


def test_the_package_does_not_import_torch():
    child = run("import sys, rmsnorm; print('torch' in sys.modules)")
    assert child.stdout == "False\n"

"""Compiles the operators for the PyTorch that is installed, once, and loads them.

PyTorch's C++ interface changes with every release, so one binary cannot serve all. The sources lie beside this file and
are compiled when rmsnorm.torch is first imported, in about a minute; the result is kept in a cache folder whose name
holds everything it depends on. `python -m rmsnorm torch` does it ahead of time.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile

import torch

import rmsnorm

_PACKAGE = pathlib.Path(rmsnorm.__file__).parent
_SOURCES = pathlib.Path(__file__).parent / "csrc"
_OLDEST = (2, 6)


def cache_folder() -> pathlib.Path:
    """RMSNORM_TORCH_CACHE, or rmsnorm in the user's cache folder."""
    chosen = os.environ.get("RMSNORM_TORCH_CACHE")
    if chosen:
        return pathlib.Path(chosen)
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "rmsnorm"


def _command(compiler: str, out: pathlib.Path) -> list[str]:
    root = pathlib.Path(torch.__file__).parent
    library = _PACKAGE / "lib"
    # Compiled with OpenMP, as PyTorch's parallel_for is a template, but not linked with it: the symbols must be those
    # of the runtime that PyTorch has loaded, or the process would have two.
    return [
        compiler,
        *("-std=c++20", "-O2", "-DNDEBUG", "-fPIC", "-shared", "-fopenmp", "-fvisibility=hidden", "-w"),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        f"-I{_PACKAGE / 'include'}",
        *(f"-isystem{folder}" for folder in (root / "include", root / "include/torch/csrc/api/include")),
        str(_SOURCES / "operators.cc"),
        *("-o", str(out)),
        f"-L{root / 'lib'}",
        f"-L{library}",
        *("-ltorch_cpu", "-lc10", f"-l:{_library_name()}"),
        *(f"-Wl,-rpath,{folder}" for folder in (library, root / "lib")),
    ]


def _library_name() -> str:
    return next(path.name for path in (_PACKAGE / "lib").iterdir() if path.name.startswith("librmsnorm.so"))


def _key(command: list[str]) -> str:
    state = hashlib.sha256("\n".join([torch.__version__, rmsnorm.version(), *command]).encode())
    for path in sorted([*_SOURCES.iterdir(), *(_PACKAGE / "include").rglob("*.h*")]):
        state.update(path.read_bytes())
    return f"torch-{torch.__version__}-{state.hexdigest()[:16]}"


def compiled() -> pathlib.Path:
    """The shared object for this PyTorch, compiled if it is not there."""
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < _OLDEST:
        raise ImportError(
            f"rmsnorm.torch: PyTorch is {torch.__version__}; it must be {_OLDEST[0]}.{_OLDEST[1]} or newer"
        )
    # The compiler is no part of the key: what one has made, a machine without any can use.
    folder = cache_folder() / _key(_command("c++", pathlib.Path("out")))
    target = folder / "operators.so"
    if target.exists():
        return target
    compiler = os.environ.get("CXX") or "c++"
    if shutil.which(compiler) is None:
        raise ImportError(
            f"rmsnorm.torch: compiler is {compiler}, which is not found; it must be a C++20 compiler (the environment "
            "variable CXX names another one), since the operators are compiled for each PyTorch"
        )
    folder.mkdir(parents=True, exist_ok=True)
    # Under a name of its own first: processes that start together do not see each other's half-written file.
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        out = pathlib.Path(scratch) / "operators.so"
        run = subprocess.run(_command(compiler, out), capture_output=True, text=True)
        if run.returncode != 0:
            raise ImportError(f"rmsnorm.torch: the operators could not be compiled:\n{run.stderr[-4000:]}")
        os.replace(out, target)
    return target


def load() -> None:
    torch.ops.load_library(str(compiled()))

"""oneDNN, whose wheel has a C++ interface: primitives prepared, memory bound, weights in f32, through a shim that this
file compiles."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from contestant import Contestant, Unavailable
from peer_cases import EPSILON, Operands

TYPES = {"f32": 0, "f16": 1, "bf16": 2}


def _load() -> ctypes.CDLL:
    prefix = Path(sys.prefix)
    if not (prefix / "include" / "dnnl.hpp").exists():
        raise Unavailable("oneDNN's wheels are not installed")
    # The wheel runs on OpenCL, whose CPU driver is a wheel, too, and is found by this name.
    os.environ.setdefault("OCL_ICD_FILENAMES", str(prefix / "lib" / "libintelocl.so"))
    os.environ.setdefault("ONEDNN_VERBOSE", "0")
    for name in ("libtbb.so.12", "libtbbmalloc.so.2"):
        ctypes.CDLL(str(prefix / "lib" / name), ctypes.RTLD_GLOBAL)
    source = Path(__file__).with_name("onednn_shim.cc")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "shim.so"
        command = ["c++", "-std=c++17", "-O2", "-shared", "-fPIC", str(source), "-o", str(library)]
        command += [f"-I{prefix}/include", f"-L{prefix}/lib", f"-Wl,--disable-new-dtags,-rpath,{prefix}/lib", "-ldnnl"]
        try:
            built = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError as error:
            raise Unavailable("no C++ compiler for its shim") from error
        if built.returncode != 0:
            raise Unavailable("its shim does not compile: " + (built.stderr.splitlines() or ["no message"])[0])
        try:
            shim = ctypes.CDLL(str(library))
        except OSError as error:
            raise Unavailable(str(error)) from error
    shim.onednn_norm.restype = ctypes.c_void_p
    pointers = [ctypes.c_void_p] * 4
    shim.onednn_norm.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, *pointers, ctypes.c_float]
    shim.onednn_run.argtypes = [ctypes.c_void_p]
    shim.onednn_version.restype = ctypes.c_char_p
    return shim


SHIM = _load()


def version() -> str:
    return SHIM.onednn_version().decode()


def contestants(operands: Operands, threads: int) -> Iterator[Contestant]:
    case = operands.case
    if case.op not in ("rms_norm", "layer_norm"):
        raise Unavailable("the plain norms only: its residual add is not fused, its backward of RMSNorm is not asked")
    weight = operands.weight.astype(np.float32)
    bias = None if operands.bias is None else operands.bias.astype(np.float32)
    out = np.empty_like(operands.x)
    norm = SHIM.onednn_norm(
        TYPES[case.type],
        *case.shape,
        operands.x.ctypes.data,
        weight.ctypes.data,
        None if bias is None else bias.ctypes.data,
        out.ctypes.data,
        EPSILON,
    )
    if norm is None:
        raise Unavailable(f"no primitive for {case.type}")
    alive = (weight, bias)  # as long as the call below
    yield Contestant("oneDNN", "f32 weights", lambda n=norm, a=alive: SHIM.onednn_run(n), lambda: out)

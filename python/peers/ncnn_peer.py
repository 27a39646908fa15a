"""ncnn, which normalises f32 blobs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from contestant import Contestant, Unavailable
from peer_cases import EPSILON, Operands

try:
    import ncnn
except ImportError as error:
    raise Unavailable("ncnn is not installed") from error


def version() -> str:
    return ncnn.__version__


def contestants(operands: Operands, threads: int) -> Iterator[Contestant]:
    case = operands.case
    if case.type != "f32" or operands.dy is not None or operands.residual is not None:
        raise Unavailable("it is asked for the plain norms of f32 only")
    kind = "RMSNorm" if case.op == "rms_norm" else "LayerNorm"
    net = ncnn.Net()
    net.opt.num_threads = threads
    net.opt.lightmode = False  # else it frees and overwrites the input
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    net.load_param_mem(f"7767517\n2 2\nInput x 0 1 x\n{kind} norm 1 1 x out 0={case.cols} 1={EPSILON:e} 2=1\n")
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "weights.bin"
        weights.write_bytes(operands.weight.tobytes() + (b"" if operands.bias is None else operands.bias.tobytes()))
        net.load_model(str(weights))
    x = ncnn.Mat(operands.x)
    state = {}

    def run() -> None:
        with net.create_extractor() as extractor:
            extractor.input("x", x)
            state["out"] = extractor.extract("out")[1]

    yield Contestant("ncnn", "default", run, lambda: np.array(state["out"]))

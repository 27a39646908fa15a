"""This library: on NumPy arrays, and its PyTorch operators where PyTorch is installed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import rmsnorm
from contestant import Contestant, Holder
from peer_cases import EPSILON, Operands


def version() -> str:
    return f"{rmsnorm.__version__} ({rmsnorm.target()})"


def contestants(operands: Operands, threads: int) -> Iterator[Contestant]:
    o = operands
    out, total, dweight = np.empty_like(o.x), np.empty_like(o.x), np.empty_like(o.weight)
    # The function, its inputs, the outputs given, what is asked for where none are given.
    function, inputs, given, asked = {
        "rms_norm": (rmsnorm.rms_norm, (o.x, o.weight), {"out": out}, {}),
        "layer_norm": (rmsnorm.layer_norm, (o.x, o.weight, o.bias), {"out": out}, {}),
        "add_rms_norm": (rmsnorm.add_rms_norm, (o.x, o.residual, o.weight), {"out": out, "residual_out": total}, {}),
        "rms_norm_backward": (
            rmsnorm.rms_norm_backward,
            (o.dy, o.x, o.weight),
            {"dx": out, "dweight": dweight},
            {"dweight": True},
        ),
    }[o.case.op]
    options = {"epsilon": EPSILON, "threads": threads}
    yield Contestant("rmsnorm", "out=", lambda: function(*inputs, **given, **options), lambda: out)
    fresh = Holder(lambda: function(*inputs, **asked, **options))
    yield Contestant("rmsnorm", "default", fresh, fresh.first)

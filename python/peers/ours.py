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
    case, o = operands.case, operands
    options = {"epsilon": EPSILON, "threads": threads}
    out = np.empty_like(o.x)
    if case.op == "rms_norm":
        yield Contestant("rmsnorm", "out=", lambda: rmsnorm.rms_norm(o.x, o.weight, out=out, **options), lambda: out)
        fresh = Holder(lambda: rmsnorm.rms_norm(o.x, o.weight, **options))
        yield Contestant("rmsnorm", "default", fresh, lambda: fresh.value)
    elif case.op == "layer_norm":
        yield Contestant(
            "rmsnorm", "out=", lambda: rmsnorm.layer_norm(o.x, o.weight, o.bias, out=out, **options), lambda: out
        )
        fresh = Holder(lambda: rmsnorm.layer_norm(o.x, o.weight, o.bias, **options))
        yield Contestant("rmsnorm", "default", fresh, lambda: fresh.value)
    elif case.op == "add_rms_norm":
        total = np.empty_like(o.x)
        run = lambda: rmsnorm.add_rms_norm(o.x, o.residual, o.weight, out=out, residual_out=total, **options)  # noqa: E731
        yield Contestant("rmsnorm", "out=", run, lambda: out)
        fresh = Holder(lambda: rmsnorm.add_rms_norm(o.x, o.residual, o.weight, **options))
        yield Contestant("rmsnorm", "default", fresh, lambda: fresh.value[0])
    else:
        dweight = np.empty_like(o.weight)
        run = lambda: rmsnorm.rms_norm_backward(o.dy, o.x, o.weight, dx=out, dweight=dweight, **options)  # noqa: E731
        yield Contestant("rmsnorm", "out=", run, lambda: out)
        fresh = Holder(lambda: rmsnorm.rms_norm_backward(o.dy, o.x, o.weight, dweight=True, **options))
        yield Contestant("rmsnorm", "default", fresh, lambda: fresh.value[0])

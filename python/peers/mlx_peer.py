"""MLX on the CPU."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from contestant import Contestant, Holder, Unavailable
from peer_cases import EPSILON, Operands

try:
    import mlx.core as mx
except ImportError as error:
    raise Unavailable("MLX is not installed") from error

TYPES = {"f32": mx.float32, "bf16": mx.bfloat16, "f16": mx.float16}


def version() -> str:
    return mx.__version__


def contestants(operands: Operands, threads: int) -> Iterator[Contestant]:
    if threads != 1:
        raise Unavailable("its CPU backend uses one thread")
    mx.set_default_device(mx.cpu)
    case = operands.case

    def array(a: np.ndarray) -> mx.array:
        return mx.array(a.astype(np.float32)).astype(TYPES[case.type])

    x, weight = array(operands.x), array(operands.weight)
    if case.op == "layer_norm":
        bias = array(operands.bias)
        function = lambda: mx.fast.layer_norm(x, weight, bias, EPSILON)  # noqa: E731
    elif case.op == "rms_norm":
        function = lambda: mx.fast.rms_norm(x, weight, EPSILON)  # noqa: E731
    elif case.op == "add_rms_norm":
        residual = array(operands.residual)

        def function():
            total = x + residual
            return mx.fast.rms_norm(total, weight, EPSILON), total

    else:
        dy = array(operands.dy)
        gradients = lambda a, w: mx.fast.rms_norm(a, w, EPSILON)  # noqa: E731
        function = lambda: tuple(mx.vjp(gradients, [x, weight], [dy])[1])  # noqa: E731

    mx.eval(x, weight)

    def run():
        value = function()
        mx.eval(value)
        return value

    holder = Holder(run)
    yield Contestant("MLX", "default", holder, lambda: np.array(holder.first().astype(mx.float32)))

"""JAX, compiled by XLA for the CPU."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from contestant import Contestant, Holder, Unavailable
from peer_cases import EPSILON, Operands

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    raise Unavailable("JAX is not installed") from error


def version() -> str:
    return jax.__version__


def rms_norm(x, weight):
    wide = x.astype(jnp.float32)
    inverse = jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + EPSILON)
    return (wide * inverse * weight.astype(jnp.float32)).astype(x.dtype)


def layer_norm(x, weight, bias):
    wide = x.astype(jnp.float32)
    centred = wide - jnp.mean(wide, -1, keepdims=True)
    inverse = jax.lax.rsqrt(jnp.mean(centred * centred, -1, keepdims=True) + EPSILON)
    return (centred * inverse * weight.astype(jnp.float32) + bias.astype(jnp.float32)).astype(x.dtype)


def add_rms_norm(x, residual, weight):
    total = x + residual
    return rms_norm(total, weight), total


def rms_norm_backward(x, weight, dy):
    return jax.vjp(rms_norm, x, weight)[1](dy)


def contestants(operands: Operands, threads: int) -> Iterator[Contestant]:
    o = operands
    function, arguments = {
        "rms_norm": (rms_norm, (o.x, o.weight)),
        "layer_norm": (layer_norm, (o.x, o.weight, o.bias)),
        "add_rms_norm": (add_rms_norm, (o.x, o.residual, o.weight)),
        "rms_norm_backward": (rms_norm_backward, (o.x, o.weight, o.dy)),
    }[o.case.op]
    compiled = jax.jit(function)
    arrays = [jax.device_put(a) for a in arguments]
    run = Holder(lambda: jax.block_until_ready(compiled(*arrays)))
    yield Contestant("JAX", "default", run, lambda: np.asarray(run.first()))

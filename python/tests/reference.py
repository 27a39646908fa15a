"""The operations in long double, as short as their formulas, independent of the library; how results are judged."""

from __future__ import annotations

import ml_dtypes
import numpy as np

REAL = np.longdouble
F32, F64, F16 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16)
BF16 = np.dtype(ml_dtypes.bfloat16)
TYPES = [F32, F16, BF16, F64]

# Mantissa bits and the exponent of the smallest normal number.
_FORMATS = {F32: (23, -126), F64: (52, -1022), F16: (10, -14), BF16: (7, -126)}


def real(array):
    """The array in long double; None stays None."""
    return None if array is None else np.asarray(array).astype(F64).astype(REAL)


def ulp(value, dtype):
    """The spacing of dtype's numbers around value."""
    bits, smallest = _FORMATS[np.dtype(dtype)]
    exponent = np.frexp(np.abs(value))[1] - 1
    return np.ldexp(REAL(1), np.maximum(exponent, smallest) - bits)


def ulps(got, expected, dtype=None, scale=None):
    """The largest error of `got` in units of its last place, or in those of the larger `scale`."""
    dtype = np.dtype(dtype or got.dtype)
    magnitude = np.abs(expected) if scale is None else np.maximum(np.abs(expected), scale)
    error = np.abs(real(got) - expected) / ulp(magnitude, dtype)
    assert np.all(np.isfinite(error))
    return float(error.max(initial=0))


def round_to(value, dtype):
    """One rounding to dtype, to nearest and ties to even, back in long double."""
    step = ulp(value, dtype)
    return np.rint(value / step) * step


def inv_rms(x, epsilon, placement="inside", partial=0):
    squares = (x[..., : partial or None] ** 2).mean(-1, keepdims=True)
    return 1 / np.sqrt(squares + REAL(epsilon)) if placement == "inside" else 1 / (np.sqrt(squares) + REAL(epsilon))


def rms_norm(x, weight=None, bias=None, epsilon=1e-6, offset=0.0, placement="inside", partial=0):
    x, weight, bias = real(x), real(weight), real(bias)
    out = x * inv_rms(x, epsilon, placement, partial)
    out = out if weight is None else out * (weight + offset)
    return out if bias is None else out + bias


def layer_norm(x, weight=None, bias=None, epsilon=1e-5, offset=0.0):
    x, weight, bias = real(x), real(weight), real(bias)
    x = x - x.mean(-1, keepdims=True)
    x = x - x.mean(-1, keepdims=True)
    out = x / np.sqrt((x**2).mean(-1, keepdims=True) + REAL(epsilon))
    out = out if weight is None else out * (weight + offset)
    return out if bias is None else out + bias


def rms_norm_backward(dy, x, weight=None, epsilon=1e-6, offset=0.0, placement="inside", partial=0):
    """dx, dweight, dbias, and the largest term of dx in each row."""
    dy, x = real(dy), real(x)
    g = dy if weight is None else dy * (real(weight) + offset)
    inv = inv_rms(x, epsilon, placement, partial)
    k = partial or x.shape[-1]
    factor = inv**3 / k if placement == "inside" else inv**2 / (k * np.sqrt((x[..., :k] ** 2).mean(-1, keepdims=True)))
    inside = np.arange(x.shape[-1]) < k
    second = inside * factor * x * (g * x).sum(-1, keepdims=True)
    leading = tuple(range(x.ndim - 1))
    scale = np.maximum(np.abs(inv * g), np.abs(second)).max(-1, keepdims=True)
    return inv * g - second, (dy * x * inv).sum(leading), dy.sum(leading), scale


def layer_norm_backward(dy, x, weight=None, epsilon=1e-5, offset=0.0):
    """dx, dweight, dbias, and the largest term of dx in each row."""
    dy, x = real(dy), real(x)
    g = dy if weight is None else dy * (real(weight) + offset)
    centred = x - x.mean(-1, keepdims=True)
    inv = 1 / np.sqrt((centred**2).mean(-1, keepdims=True) + REAL(epsilon))
    h = centred * inv
    mean_g, mean_gh = g.mean(-1, keepdims=True), (g * h).mean(-1, keepdims=True)
    leading = tuple(range(x.ndim - 1))
    scale = np.maximum(np.abs(inv * g), np.abs(inv * h * mean_gh)).max(-1, keepdims=True)
    return inv * (g - mean_g - h * mean_gh), (dy * h).sum(leading), dy.sum(leading), scale


def silu(gate):
    return gate / (1 + np.exp(-gate))


def grouped(x, groups):
    return x.reshape(*x.shape[:-1], groups, x.shape[-1] // groups)


def gated_rms_norm(x, gate, weight=None, epsilon=1e-6, order="last", groups=1):
    x, gate, weight = real(x), real(gate), real(weight)
    u = x * silu(gate) if order == "first" else x
    parts = grouped(u, groups)
    out = (parts * inv_rms(parts, epsilon)).reshape(x.shape)
    out = out if weight is None else out * weight
    return out * silu(gate) if order == "last" else out


def rotate(y, cos_sin, positions, layout="half_split"):
    """Rotary embedding of [tokens, heads, head_dim]."""
    half = cos_sin.shape[1] // 2
    table = real(cos_sin)[positions][:, None]
    cos, sin = table[..., :half], table[..., half:]
    a = np.arange(half) if layout == "half_split" else 2 * np.arange(half)
    b = a + half if layout == "half_split" else a + 1
    out = y.copy()
    out[..., a] = y[..., a] * cos - y[..., b] * sin
    out[..., b] = y[..., b] * cos + y[..., a] * sin
    return out


def values(shape, dtype, seed=0, scale=1.0):
    """Normal numbers, the same on every machine."""
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)

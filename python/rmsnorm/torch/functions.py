"""The operators as functions, with their defaults."""

from __future__ import annotations

import torch
from torch import Tensor

from . import _batching, _operators

_operators.load()
_batching.register()
_ops = torch.ops.rmsnorm
_rms_norm = _ops.rms_norm.default
_layer_norm = _ops.layer_norm.default

# One place for the defaults, which are the library's own.
RMS_EPSILON = 1e-6
LAYER_EPSILON = 1e-5


def rms_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = RMS_EPSILON,
    weight_offset: float = 0.0,
    epsilon_placement: str = "inside",
    rounding: str = "once",
    partial: int = 0,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """RMSNorm over the last axis: inv = 1 / sqrt(mean(x^2) + epsilon), out = x * inv * (weight + weight_offset) + bias.

    x        [.., d]  float32, float16, bfloat16 or float64, up to 8 axes; copied if its last axis is not dense
    weight   [d], or broadcasting against x; None: factor 1; float32, float16 or bfloat16 (float64 x: float64, float32)
    bias     as weight
    epsilon  torch.nn.functional.rms_norm has 1.19e-7 for float32
    weight_offset, epsilon_placement, rounding, partial  as for rmsnorm.rms_norm
    dtype    of the result: that of x (None), or float32, or float16 / bfloat16 where x is float32

    `rounding` changes no gradient. ValueError and TypeError for wrong arguments.
    Zhang and Sennrich 2019, "Root Mean Square Layer Normalization".
    """
    return _rms_norm(x, weight, bias, epsilon, weight_offset, epsilon_placement, rounding, partial, dtype)


def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = LAYER_EPSILON,
    weight_offset: float = 0.0,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """LayerNorm over the last axis: out = (x - m) / sqrt(v + epsilon) * (weight + weight_offset) + bias.

    m and v are mean and biased variance of the row. Arguments as for rms_norm.
    Ba, Kiros and Hinton 2016, "Layer Normalization".
    """
    return _layer_norm(x, weight, bias, epsilon, weight_offset, dtype)


def center(x: Tensor) -> Tensor:
    """x - mean(x) over the last axis, correctly rounded but next to ties."""
    return _ops.center.default(x)


def add_rms_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = RMS_EPSILON,
    weight_offset: float = 0.0,
    epsilon_placement: str = "inside",
    rounding: str = "once",
    partial: int = 0,
    norm_input: str = "rounded_sum",
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Residual add and RMSNorm in one pass: residual_out = round(x + residual), out = rms_norm(residual_out).

    residual    as x, or float32 where x is float16 or bfloat16 (under autocast any floating type)
    norm_input  'unrounded_sum': the norm reads the sum before it is rounded
    The other arguments are those of rms_norm. Returns (out, residual_out), residual_out in the type of residual.
    """
    return _ops.add_rms_norm.default(
        x, residual, weight, bias, epsilon, weight_offset, epsilon_placement, rounding, partial, norm_input, dtype
    )


def add_layer_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = LAYER_EPSILON,
    weight_offset: float = 0.0,
    norm_input: str = "rounded_sum",
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Residual add and LayerNorm in one pass. Arguments and result as for add_rms_norm."""
    return _ops.add_layer_norm.default(x, residual, weight, bias, epsilon, weight_offset, norm_input, dtype)


def gated_rms_norm(
    x: Tensor,
    gate: Tensor,
    weight: Tensor | None = None,
    *,
    epsilon: float = RMS_EPSILON,
    gate_order: str = "last",
    rounding: str = "once",
    groups: int = 1,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """RMSNorm with a gate: x * inv * weight * silu(gate), or with gate_order 'first' of u = x * silu(gate).

    The mean is over each of `groups` equal parts of a row. Arguments as for rmsnorm.gated_rms_norm.
    """
    return _ops.gated_rms_norm.default(x, gate, weight, epsilon, gate_order, rounding, groups, dtype)


def qk_norm_rope(
    q: Tensor,
    k: Tensor,
    q_weight: Tensor | None = None,
    k_weight: Tensor | None = None,
    cos_sin: Tensor | None = None,
    positions: Tensor | None = None,
    *,
    epsilon: float = RMS_EPSILON,
    weight_offset: float = 0.0,
    epsilon_placement: str = "inside",
    rounding: str = "once",
    rope_layout: str = "half_split",
) -> tuple[Tensor, Tensor]:
    """RMSNorm of each head of Q and K, then rotary embedding. Returns (q_out, k_out).

    q, k       [.., heads, head_dim]  the axes before the heads are tokens
    cos_sin    [positions, rotary_dim]  float32: cosines, then sines, for each position; no gradient
    positions  [..] of each token, int32 or int64; None: the index on the axis before the heads
    The other arguments are those of rmsnorm.qk_norm_rope.
    """
    return _ops.qk_norm_rope.default(
        q,
        k,
        q_weight,
        k_weight,
        cos_sin,
        positions,
        epsilon,
        weight_offset,
        epsilon_placement,
        rounding,
        rope_layout,
    )


def rms_norm_channels(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = RMS_EPSILON,
    weight_offset: float = 0.0,
) -> Tensor:
    """RMSNorm over the channels of each pixel of x, [N, C, .., W]; weight and bias are [C]."""
    return _ops.channels.default(x, 0, weight, bias, epsilon, weight_offset)


def group_rms_norm(
    x: Tensor,
    groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = RMS_EPSILON,
    weight_offset: float = 0.0,
) -> Tensor:
    """RMSNorm over `groups` groups of channels and all pixels of x, [N, C, .., W]; weight and bias are [C]."""
    if groups < 1:
        raise ValueError(f"group_rms_norm: groups is {groups}; it must be from 1 to the number of channels")
    return _ops.channels.default(x, groups, weight, bias, epsilon, weight_offset)


def rms_norm_quantize(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = RMS_EPSILON,
    weight_offset: float = 0.0,
    epsilon_placement: str = "inside",
    rounding: str = "once",
    partial: int = 0,
    scaling: str = "per_row",
    static_scale: float = 1.0,
    power_of_two: bool = False,
    dtype: torch.dtype = torch.int8,
) -> tuple[Tensor, Tensor | None]:
    """RMSNorm with a quantised output: int8, float8_e4m3fn or float8_e5m2. It has no gradient.

    Returns (out, scale); with scaling 'static' scale is None. Arguments as for rmsnorm.rms_norm_quantize.
    """
    out, scale = _ops.rms_norm_quantize.default(
        x,
        weight,
        bias,
        epsilon,
        weight_offset,
        epsilon_placement,
        rounding,
        partial,
        scaling,
        static_scale,
        power_of_two,
        dtype,
    )
    return out, None if scaling == "static" else scale


def add_rms_norm_quantize(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = RMS_EPSILON,
    weight_offset: float = 0.0,
    epsilon_placement: str = "inside",
    rounding: str = "once",
    partial: int = 0,
    norm_input: str = "rounded_sum",
    scaling: str = "per_row",
    static_scale: float = 1.0,
    power_of_two: bool = False,
    dtype: torch.dtype = torch.int8,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The residual add, RMSNorm of the sum, and its quantisation in one pass. It has no gradient.

    Returns (out, residual_out, scale); with scaling 'static' scale is None. Arguments as for
    rmsnorm.add_rms_norm_quantize.
    """
    out, residual_out, scale = _ops.add_rms_norm_quantize.default(
        x,
        residual,
        weight,
        bias,
        epsilon,
        weight_offset,
        epsilon_placement,
        rounding,
        partial,
        norm_input,
        scaling,
        static_scale,
        power_of_two,
        dtype,
    )
    return out, residual_out, None if scaling == "static" else scale

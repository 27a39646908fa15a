"""Modules over the functions. Their parameters have the names of torch.nn's, so state_dicts are exchanged freely."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from . import functions
from .functions import LAYER_EPSILON, RMS_EPSILON

Shape = int | Sequence[int]


def _rows(x: Tensor, shape: tuple[int, ...], name: str) -> Tensor:
    """The axes of `shape` as one."""
    if tuple(x.shape[-len(shape) :]) != shape:
        raise ValueError(f"{name}: the shape of x is {tuple(x.shape)}; it must end with {shape}, the normalized_shape")
    return x if len(shape) == 1 else x.reshape(*x.shape[: -len(shape)], math.prod(shape))


def _shaped(out: Tensor, x: Tensor) -> Tensor:
    return out if out.shape == x.shape else out.reshape(x.shape)


def _vector(parameter: Tensor | None) -> Tensor | None:
    return parameter if parameter is None or parameter.dim() == 1 else parameter.reshape(-1)


class RMSNorm(nn.RMSNorm):
    """torch.nn.RMSNorm with this library's kernels.

    eps is 1e-6 for every type (torch.nn's None stands for the type's own epsilon, 1.19e-7 for float32).
    weight_offset, epsilon_placement and rounding are those of rms_norm; with weight_offset 1 weights start from 0.
    """

    def __init__(
        self,
        normalized_shape: Shape,
        eps: float = RMS_EPSILON,
        elementwise_affine: bool = True,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
        *,
        weight_offset: float = 0.0,
        epsilon_placement: str = "inside",
        rounding: str = "once",
    ) -> None:
        self.weight_offset = weight_offset
        self.epsilon_placement = epsilon_placement
        self.rounding = rounding
        super().__init__(normalized_shape, eps, elementwise_affine, device, dtype)

    def reset_parameters(self) -> None:
        if self.elementwise_affine:
            nn.init.constant_(self.weight, 1 - self.weight_offset)

    def _options(self) -> dict[str, object]:
        return {
            "epsilon": self.eps,
            "weight_offset": self.weight_offset,
            "epsilon_placement": self.epsilon_placement,
            "rounding": self.rounding,
        }

    def forward(self, x: Tensor) -> Tensor:
        rows = _rows(x, self.normalized_shape, "RMSNorm")
        return _shaped(functions.rms_norm(rows, _vector(self.weight), **self._options()), x)

    def extra_repr(self) -> str:
        text = super().extra_repr()
        for name, default in (("weight_offset", 0.0), ("epsilon_placement", "inside"), ("rounding", "once")):
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)!r}"
        return text


class AddRMSNorm(RMSNorm):
    """add_rms_norm as a module: forward(x, residual) gives (out, residual_out). Its state_dict is that of RMSNorm."""

    def forward(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        rows = [_rows(tensor, self.normalized_shape, "AddRMSNorm") for tensor in (x, residual)]
        out, residual_out = functions.add_rms_norm(*rows, _vector(self.weight), **self._options())
        return _shaped(out, x), _shaped(residual_out, x)


class LayerNorm(nn.LayerNorm):
    """torch.nn.LayerNorm with this library's kernels: the same arguments, the same state_dict."""

    def __init__(
        self,
        normalized_shape: Shape,
        eps: float = LAYER_EPSILON,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine, bias, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        rows = _rows(x, self.normalized_shape, "LayerNorm")
        out = functions.layer_norm(rows, _vector(self.weight), _vector(self.bias), epsilon=self.eps)
        return _shaped(out, x)


class AddLayerNorm(LayerNorm):
    """add_layer_norm as a module: forward(x, residual) gives (out, residual_out)."""

    def forward(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        rows = [_rows(tensor, self.normalized_shape, "AddLayerNorm") for tensor in (x, residual)]
        out, residual_out = functions.add_layer_norm(*rows, _vector(self.weight), _vector(self.bias), epsilon=self.eps)
        return _shaped(out, x), _shaped(residual_out, x)


class GatedRMSNorm(nn.Module):
    """gated_rms_norm as a module with one parameter, weight: forward(x, gate)."""

    def __init__(
        self,
        width: int,
        eps: float = RMS_EPSILON,
        gate_order: str = "last",
        rounding: str = "once",
        groups: int = 1,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.eps = eps
        self.gate_order = gate_order
        self.rounding = rounding
        self.groups = groups
        self.weight = nn.Parameter(torch.ones(width, device=device, dtype=dtype))

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        return functions.gated_rms_norm(
            x,
            gate,
            self.weight,
            epsilon=self.eps,
            gate_order=self.gate_order,
            rounding=self.rounding,
            groups=self.groups,
        )

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, eps={self.eps}, gate_order={self.gate_order!r}, groups={self.groups}"

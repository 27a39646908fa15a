"""Norms of rows whose columns are split over the ranks of a process group, with gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from .functions import LAYER_EPSILON, RMS_EPSILON

_ops = torch.ops.rmsnorm


def _in_rank_order(group: dist.ProcessGroup | None) -> Callable[[Tensor], Tensor]:
    """Adds a tensor over the ranks of `group` in their order: an all_reduce promises none, and so no bits."""

    def total(mine: Tensor) -> Tensor:
        parts = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, mine, group=group)
        result = parts[0]
        for part in parts[1:]:
            result += part
        return result

    return total


def _check(function: str, x: Tensor, total_cols: int) -> None:
    cols = x.shape[-1] if x.dim() else 1
    if total_cols < cols:
        raise ValueError(f"{function}: total_cols is {total_cols}; it must be at least {cols}, this rank's columns")


def _refuse_graph(function: str) -> None:
    """A gradient that seems to be constant would be worse: a penalty on it would have no effect."""
    if torch.is_grad_enabled():
        raise RuntimeError(f"{function}: create_graph is True; it must be False, as there are no second derivatives")


def _wanted(ctx, first: int) -> tuple[bool, bool, bool]:
    return (True, ctx.needs_input_grad[first], ctx.needs_input_grad[first + 1])


def _dbias_type(x: Tensor, bias: Tensor | None) -> torch.dtype:
    if bias is not None:
        return bias.dtype
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _gradients(gradients: tuple[Tensor, Tensor, Tensor], wants: tuple[bool, bool, bool]) -> list[Tensor | None]:
    return [gradient if wanted else None for gradient, wanted in zip(gradients, wants, strict=True)]


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, total, total_cols, epsilon, weight_offset, epsilon_placement, rounding, dtype):
        squares = total(_ops.rms_sum_squares(x))
        ctx.save_for_backward(x, weight, bias, squares)
        ctx.total = total
        ctx.options = (total_cols, epsilon, weight_offset, epsilon_placement)
        return _ops.rms_norm_apply(
            x, squares, total_cols, weight, bias, epsilon, weight_offset, epsilon_placement, rounding, dtype
        )

    @staticmethod
    def backward(ctx, dy):
        _refuse_graph("sharded_rms_norm")
        x, weight, bias, squares = ctx.saved_tensors
        total_cols, epsilon, weight_offset, placement = ctx.options
        wants = _wanted(ctx, 1)
        products = ctx.total(_ops.rms_backward_sum(dy, x, weight, weight_offset))
        gradients = _ops.rms_norm_backward_apply(
            dy, x, squares, products, total_cols, weight, epsilon, weight_offset, placement, _dbias_type(x, bias), wants
        )
        return *_gradients(gradients, wants), *[None] * 7


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, total, total_cols, epsilon, weight_offset, dtype):
        sums = total(_ops.layer_sum(x))
        squares = total(_ops.layer_sum_squares(x, sums, total_cols))
        ctx.save_for_backward(x, weight, bias, sums, squares)
        ctx.total = total
        ctx.options = (total_cols, epsilon, weight_offset)
        return _ops.layer_norm_apply(x, sums, squares, total_cols, weight, bias, epsilon, weight_offset, dtype)

    @staticmethod
    def backward(ctx, dy):
        _refuse_graph("sharded_layer_norm")
        x, weight, bias, sums, squares = ctx.saved_tensors
        total_cols, epsilon, weight_offset = ctx.options
        wants = _wanted(ctx, 1)
        totals = ctx.total(_ops.layer_backward_sums(dy, x, sums, total_cols, weight, weight_offset))
        gradients = _ops.layer_norm_backward_apply(
            dy, x, sums, squares, totals, total_cols, weight, epsilon, weight_offset, _dbias_type(x, bias), wants
        )
        return *_gradients(gradients, wants), *[None] * 5


@torch.compiler.disable
def sharded_rms_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    total_cols: int,
    group: dist.ProcessGroup | None = None,
    total: Callable[[Tensor], Tensor] | None = None,
    epsilon: float = RMS_EPSILON,
    weight_offset: float = 0.0,
    epsilon_placement: str = "inside",
    rounding: str = "once",
    dtype: torch.dtype | None = None,
) -> Tensor:
    """rms_norm of rows whose columns are split over ranks: one float64 number a row travels, and one for the gradient.

    x           [.., d]  this rank's columns; ranks need not have equally many
    weight, bias  [d]  those of this rank's columns
    total_cols  the columns of all ranks together
    group       the process group; None: the default one. Every rank of it must call with the same number of rows
    total       in place of a group: given this rank's sums, returns everybody's, added in the order of the ranks
    The other arguments are those of rms_norm.

    The result is this rank's columns, within the error of rms_norm of whole rows, the same for every number of threads.
    Gradients of x, weight and bias; no second derivatives. Under torch.compile it is a graph break.
    ValueError and TypeError for wrong arguments.
    """
    _check("sharded_rms_norm", x, total_cols)
    total = total or _in_rank_order(group)
    return _RmsNorm.apply(
        x, weight, bias, total, total_cols, epsilon, weight_offset, epsilon_placement, rounding, dtype
    )


@torch.compiler.disable
def sharded_layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    total_cols: int,
    group: dist.ProcessGroup | None = None,
    total: Callable[[Tensor], Tensor] | None = None,
    epsilon: float = LAYER_EPSILON,
    weight_offset: float = 0.0,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """layer_norm of rows whose columns are split over ranks: two rounds of one float64 number a row, one of two for the
    gradient. Arguments as for sharded_rms_norm.
    """
    _check("sharded_layer_norm", x, total_cols)
    total = total or _in_rank_order(group)
    return _LayerNorm.apply(x, weight, bias, total, total_cols, epsilon, weight_offset, dtype)

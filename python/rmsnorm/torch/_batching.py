"""torch.func.vmap: the batch becomes the first axis of the rows, and one call of the kernel does all of it."""

from __future__ import annotations

import torch
from torch import Tensor

# Operators, and how many of their first arguments are activations; the tensors behind those broadcast against them.
_ACTIVATIONS = {"rms_norm": 1, "layer_norm": 1, "center": 1, "add_rms_norm": 2, "add_layer_norm": 2}


def _activation(value: Tensor, dim: int | None, size: int) -> Tensor:
    return value.unsqueeze(0).expand(size, *value.shape) if dim is None else value.movedim(dim, 0)


def _parameter(value: Tensor, dim: int | None, rank: int) -> Tensor:
    """[batch, 1, .., its own axes], so that it broadcasts against [batch, the activations' axes]."""
    if dim is None:
        return value
    value = value.movedim(dim, 0)
    return value.reshape(value.shape[0], *(1,) * (rank - value.dim() + 1), *value.shape[1:])


def _rule(name: str, activations: int):
    operator = getattr(torch.ops.rmsnorm, name).default

    def rule(info, in_dims, *arguments):
        rank = arguments[0].dim() - (in_dims[0] is not None)
        moved = [
            argument
            if not isinstance(argument, Tensor)
            else _activation(argument, dim, info.batch_size)
            if index < activations
            else _parameter(argument, dim, rank)
            for index, (argument, dim) in enumerate(zip(arguments, in_dims, strict=True))
        ]
        result = operator(*moved)
        return result, (0, 0) if isinstance(result, tuple) else 0

    return rule


def register() -> None:
    for name, activations in _ACTIVATIONS.items():
        torch.library.register_vmap(f"rmsnorm::{name}", _rule(name, activations))

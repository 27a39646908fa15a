"""The names that the signatures of this package use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, Union

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy as np


class SupportsDLPack(Protocol):
    """A tensor of another library, in the memory of the CPU: PyTorch, JAX, CuPy's pinned memory and others."""

    def __dlpack__(self, *, stream: Any = ...) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...


Array: TypeAlias = Union["np.ndarray[Any, Any]", SupportsDLPack]

# What is returned is what was given as `out`, or NumPy arrays; how many depends on what was asked for.
Result: TypeAlias = Any

EpsilonPlacement: TypeAlias = Literal["inside", "outside"]
Rounding: TypeAlias = Literal["once", "before_weight", "exact"]
NormInput: TypeAlias = Literal["rounded_sum", "unrounded_sum"]
GateOrder: TypeAlias = Literal["last", "first"]
RopeLayout: TypeAlias = Literal["half_split", "interleaved"]
Scaling: TypeAlias = Literal["static", "per_row", "per_group"]

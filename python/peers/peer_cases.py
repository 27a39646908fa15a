"""What is measured: operations, types and shapes, their operands, and the error of a result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import ml_dtypes
import numpy as np

EPSILON = 1e-5
OPS = ("rms_norm", "layer_norm", "add_rms_norm", "rms_norm_backward")
DTYPES = {"f32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16)}
FRACTION_BITS = {"f32": 23, "bf16": 7, "f16": 10}
SMALLEST_EXPONENT = {"f32": -126, "bf16": -126, "f16": -14}

# Of one token, a batch, caches and memory: decoding, prefill, QK-norm.
SHAPES = ((1, 4096), (16, 4096), (512, 1024), (512, 4096), (65536, 128), (4096, 4096))
QUICK_SHAPES = ((1, 4096), (512, 1024), (4096, 4096))

# Bytes that an operation must read and write, in rows of its element type.
MOVED = {"rms_norm": 2, "layer_norm": 2, "add_rms_norm": 4, "rms_norm_backward": 3}


@dataclass(frozen=True)
class Case:
    op: str
    type: str
    rows: int
    cols: int
    rng_seed: int = field(default=1, repr=False)

    @property
    def dtype(self) -> np.dtype:
        return DTYPES[self.type]

    @property
    def shape(self) -> tuple[int, int]:
        return (self.rows, self.cols)

    @property
    def bytes(self) -> int:
        return MOVED[self.op] * self.rows * self.cols * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.op} {self.type} {self.rows}x{self.cols}"


class Operands:
    """The arrays of one case, read-only, shared by all contestants; and what the result should be."""

    def __init__(self, case: Case) -> None:
        self.case = case
        rng = np.random.default_rng(case.rng_seed)

        def normal(*shape: int) -> np.ndarray:
            return rng.standard_normal(shape, np.float32).astype(case.dtype)

        self.x = normal(*case.shape)
        self.weight = (1 + 0.2 * rng.standard_normal(case.cols, np.float32)).astype(case.dtype)
        self.bias = normal(case.cols) if case.op == "layer_norm" else None
        self.residual = normal(*case.shape) if case.op == "add_rms_norm" else None
        self.dy = normal(*case.shape) if case.op == "rms_norm_backward" else None

    @cached_property
    def sample(self) -> np.ndarray:
        """Rows whose results are compared."""
        rows = self.case.rows
        return np.unique(np.linspace(0, rows - 1, min(rows, 64)).astype(int))

    @cached_property
    def expected(self) -> np.ndarray:
        """The first result in the sampled rows, in f64."""
        x = self.x[self.sample].astype(np.float64)
        weight = self.weight.astype(np.float64)
        if self.residual is not None:
            x += self.residual[self.sample].astype(np.float64)
            x = x.astype(self.case.dtype).astype(np.float64)  # the norm reads the stored sum
        if self.bias is not None:
            x -= x.mean(-1, keepdims=True)
        inv = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON)
        if self.dy is None:
            return x * inv * weight + (0 if self.bias is None else self.bias.astype(np.float64))
        g = self.dy[self.sample].astype(np.float64) * weight
        xhat = x * inv
        return inv * (g - xhat * (g * xhat).mean(-1, keepdims=True))

    def largest_error(self, result: np.ndarray) -> float:
        """In units of the last place of the row's largest number for gradients, else of the expected number."""
        found = np.asarray(result).reshape(self.case.shape)[self.sample].astype(np.float64)
        expected = self.expected
        size = np.abs(expected)
        if self.dy is not None:
            size = np.broadcast_to(size.max(-1, keepdims=True), size.shape)
        elif self.bias is not None:  # of the largest addend: sums may cancel
            bias = self.bias.astype(np.float64)
            size = np.maximum(np.maximum(size, np.abs(bias)), np.abs(expected - bias))
        exponent = np.maximum(np.frexp(size)[1] - 1, SMALLEST_EXPONENT[self.case.type])
        return float(np.max(np.abs(found - expected) / np.exp2(exponent - FRACTION_BITS[self.case.type])))


def cases(ops: list[str], types: list[str], shapes: list[tuple[int, int]]) -> Iterator[Case]:
    for op in ops:
        for name in types:
            for rows, cols in shapes:
                yield Case(op, name, rows, cols)

"""What a peer gives to the measurement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


class Unavailable(Exception):
    """Why a peer, or a peer on a case, does not take part."""


@dataclass
class Contestant:
    """run() does the work once; result() is what the last run gave, as an array of numbers."""

    peer: str
    setting: str  # "default", or what makes it faster
    run: Callable[[], object]
    result: Callable[[], np.ndarray]
    keep_freed_pages: bool = False  # the allocator does not return large blocks while this one is timed


class Holder:
    """Keeps what the last call returned."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.function = function
        self.value: object = None

    def __call__(self) -> None:
        self.value = self.function()

    def first(self) -> object:
        """The first of several values."""
        return self.value[0] if isinstance(self.value, tuple) else self.value

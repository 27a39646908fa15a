"""Time of one small call from Python: what a call costs beside its arithmetic.

    python python/bench/call_overhead.py [--torch]

Each number is the smallest of many repetitions, in microseconds.
"""

from __future__ import annotations

import argparse
import timeit
from collections.abc import Callable

import numpy as np

import rmsnorm


def smallest(function: Callable[[], object], repeats: int = 50, calls: int = 2000) -> float:
    return min(timeit.repeat(function, repeat=repeats, number=calls)) / calls * 1e6


def measure_numpy() -> dict[str, float]:
    """rms_norm of [1, 64] float32 on NumPy arrays."""
    x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 64)
    weight = np.ones(64, np.float32)
    out = np.empty_like(x)
    rms_norm = rmsnorm.rms_norm
    return {
        "rmsnorm.rms_norm, out=": smallest(lambda: rms_norm(x, weight, out=out)),
        "rmsnorm.rms_norm": smallest(lambda: rms_norm(x, weight)),
        "numpy.empty_like": smallest(lambda: np.empty_like(x)),
        "an empty function": smallest(lambda: None),
    }


def measure_torch() -> dict[str, float]:
    """The norms of [1, 64] float32 on PyTorch tensors, theirs and ours in turn."""
    import torch

    import rmsnorm.torch as rt

    x, weight, bias = torch.linspace(-1, 1, 64).reshape(1, 64), torch.ones(64), torch.zeros(64)
    functional = torch.nn.functional
    calls = {
        "torch.nn.functional.layer_norm": lambda: functional.layer_norm(x, (64,), weight, bias),
        "rmsnorm.torch.layer_norm": lambda: rt.layer_norm(x, weight, bias),
        "torch.nn.functional.rms_norm": lambda: functional.rms_norm(x, (64,), weight),
        "rmsnorm.torch.rms_norm": lambda: rt.rms_norm(x, weight),
    }
    times = dict.fromkeys(calls, float("inf"))
    for _ in range(10):
        for name, call in calls.items():
            times[name] = min(times[name], smallest(call, 5, 500))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", action="store_true", help="measure the PyTorch operators")
    for name, microseconds in (measure_torch() if parser.parse_args().torch else measure_numpy()).items():
        print(f"{name:<32} {microseconds:7.2f} us")


if __name__ == "__main__":
    main()

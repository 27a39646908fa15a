"""Times contestants in turns: bursts of calls in random order, medians over rounds."""

from __future__ import annotations

import ctypes
import math
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from contestant import Contestant

ROUNDS = 7
SLOW_ROUNDS = 3  # where a call takes longer than SLOW
SLOW = 0.02  # seconds: no cache holds what such a call left, so it is not warmed up for each round either
BURST = 2e-3  # seconds: shorter calls are repeated until a burst takes that long
SETTLING = 1e-3  # seconds in which this process may use a tenth of a CPU before a turn begins,
LONGEST_SETTLING = 1.0  # or after which it begins anyhow

# mallopt's parameters, and glibc's defaults.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_DEFAULT_TRIM, _DEFAULT_MMAPS = 128 * 1024, 65536


@dataclass
class Timing:
    seconds: float  # median of one call
    spread: float  # largest less smallest round, in medians


def keep_freed_pages(keep: bool) -> None:
    """Whether malloc keeps large freed blocks. Else a fresh output costs page faults, often more than the norm."""
    try:
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1 if keep else _DEFAULT_TRIM)
        libc.mallopt(_M_MMAP_MAX, 0 if keep else _DEFAULT_MMAPS)
        if not keep:
            libc.malloc_trim(0)
    except (OSError, AttributeError):
        pass  # another C library: both settings then measure the same


def _settle() -> None:
    """Waits until no thread of the process runs: those of some peers spin for 200 ms when their work is done, on a CPU
    that the next in turn needs.
    """
    deadline = time.perf_counter() + LONGEST_SETTLING
    while time.perf_counter() < deadline:
        used = time.process_time()
        time.sleep(SETTLING)
        if time.process_time() - used < SETTLING / 10:
            return


def _burst(run: Callable[[], object], calls: int, warmed: bool = True) -> float:
    if warmed:
        run()
    started = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - started) / calls


def measure(contestants: list[Contestant], seed: int = 1) -> list[Timing]:
    """The time of each. All have run before."""
    calls, rounds = [], []
    for each in contestants:
        keep_freed_pages(each.keep_freed_pages)
        once = _burst(each.run, 1)
        calls.append(max(1, math.ceil(BURST / max(once, 1e-7))))
        rounds.append(SLOW_ROUNDS if once > SLOW else ROUNDS)
    times: list[list[float]] = [[] for _ in contestants]
    order = random.Random(seed)
    for turn in range(ROUNDS):
        for i in order.sample(range(len(contestants)), len(contestants)):
            if turn < rounds[i]:
                _settle()
                keep_freed_pages(contestants[i].keep_freed_pages)
                times[i].append(_burst(contestants[i].run, calls[i], rounds[i] == ROUNDS))
    keep_freed_pages(False)
    return [Timing(m := statistics.median(t), (max(t) - min(t)) / m) for t in times]

"""How a figure is taken, and how a case tells it."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "7"))
"""How often `alternate` takes turns; fewer where the whole case runs many times."""


def seconds(call: Callable[[], Any], n: int = 1) -> float:
    """Time of one call, over `n` of them in a row."""
    begun = time.perf_counter()
    for _ in range(n):
        call()
    return (time.perf_counter() - begun) / n


def alternate(
    calls: dict[str, Callable[[], Any]], n: int, rounds: int = ROUNDS
) -> dict[str, float]:
    """Median seconds a call by name; the calls take turns, so that a slow moment meets all."""
    for call in calls.values():
        seconds(call, max(n // 5, 1))
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(min(rounds, ROUNDS)):
        for name, call in calls.items():
            taken[name].append(seconds(call, n))
    return {name: statistics.median(times) for name, times in taken.items()}


def drain(items: Iterator[Any], n: int = 10_000, n_before: int = 3_000) -> float:
    """Seconds an item of a stream; what waited in buffers while none was taken does not count."""
    for _ in range(n_before):
        next(items)
    begun = time.perf_counter()
    for _ in range(n):
        next(items)
    return (time.perf_counter() - begun) / n


def tell(figures: dict[str, float]) -> None:
    """Prints figures for the process that collects them."""
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()

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
DIRECTED = bool(os.environ.get("BENCH_TURNS"))
"""Whether `bench.interleaved` has started this process."""


def seconds(call: Callable[[], Any], n: int = 1) -> float:
    """Time of one call, over `n` of them in a row."""
    begun = time.perf_counter()
    for _ in range(n):
        call()
    return (time.perf_counter() - begun) / n


def alternate(
    calls: dict[str, Callable[[], Any]], n: int, rounds: int = ROUNDS, items: int = 1
) -> dict[str, float]:
    """Median seconds by name; the calls take turns, so that a slow moment meets all.

    With BENCH_TURNS set, another process says whose turn it is (`bench.interleaved`).

    Args:
      calls: what is timed, by name.
      n: how often a call is made in one turn; a quarter of it if another process says whose
        turn it is, because there are more turns then.
      rounds: how many turns each call has.
      items: how many items a call handles; the seconds are those of one.
    """
    for call in calls.values():
        seconds(call, max(n // 5, 1))
    if DIRECTED:
        n = max(n // 4, 1)
    taken: dict[str, list[float]] = {}
    for name in _requested(list(calls)) if DIRECTED else list(calls) * min(rounds, ROUNDS):
        taken.setdefault(name, []).append(seconds(calls[name], n) / items)
        if DIRECTED:
            _print(taken[name][-1])
    return {name: statistics.median(times) for name, times in taken.items()}


def _requested(names: list[str]) -> Iterator[str]:
    """Tells the director that this case pauses, and gives the names that it asks for.

    Raises:
      SystemExit: if the director is gone.
    """
    _print({"turns": names})
    for line in sys.stdin:
        if line == "\n":
            return
        yield line.rstrip("\n")
    raise SystemExit("the process that directs the turns is gone")


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
    _print(figures)


def _print(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()

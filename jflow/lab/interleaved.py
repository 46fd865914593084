"""Functions timed in alternation, so that slow moments of the machine hit all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

_ROUND_S = 0.05
"""In each turn a function runs as often as takes about this long."""


def alternated(runs: Sequence[Callable[[], object]], rounds: int) -> list[tuple[float, ...]]:
    """Times functions in turns.

    Args:
      runs: functions without arguments. Each is called a few times before, uncounted.
      rounds: how many turns each has.

    Returns:
      For each function the mean time of a call in each of its turns, in seconds.
    """
    repeats = [max(1, round(_ROUND_S / _warm_time(run))) for run in runs]
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, repeat, found in zip(runs, repeats, times, strict=True):
            begun = time.perf_counter()
            for _ in range(repeat):
                run()
            found.append((time.perf_counter() - begun) / repeat)
    return [tuple(found) for found in times]


def _warm_time(run: Callable[[], object]) -> float:
    taken = []
    for _ in range(3):
        begun = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begun)
    return min(taken)

"""Times of steps: the median of several runs, which are interleaved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

Clock = Callable[[], float]
"""Gives seconds from any fixed time."""

_SHORT_S = 2e-3
_MOST_AT_ONCE = 10


@dataclass(frozen=True)
class Time:
    """The time of a step.

    Attributes:
      seconds: the median of all runs.
      noise: the relative difference of the medians of the first and of the second half of the runs.
    """

    seconds: float
    noise: float


def typical_times(steps: Sequence[Callable[[], object]], n_runs: int, clock: Clock) -> list[Time]:
    """The times of steps.

    Each is run before. Then all have `n_runs` turns, so that a slow moment of the machine does not
    fall on one of them. In a turn a step runs once uncounted, because other steps have filled the
    caches, and then twice, or more often if it is short: a step of a program follows itself, too.
    The median counts, because it is what steps take: of one that sends, the least is a rare case
    in which every thread was awake.
    """
    repeats = []
    for step in steps:
        step()
        begin = clock()
        step()
        spent = max(clock() - begin, 1e-9)
        repeats.append(max(2, min(_MOST_AT_ONCE, int(_SHORT_S / spent))))
    found: list[list[float]] = [[] for _ in steps]
    for _ in range(max(2, n_runs)):
        for step, times, repeat in zip(steps, found, repeats, strict=True):
            step()
            for _ in range(repeat):
                begin = clock()
                step()
                times.append(clock() - begin)
    return [_time(times) for times in found]


def _time(times: Sequence[float]) -> Time:
    half = len(times) // 2
    first, second = median(times[:half]), median(times[half:])
    return Time(median(times), abs(first - second) / max(median(times), 1e-12))

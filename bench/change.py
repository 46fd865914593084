"""What the times of two libraries that take turns say: better, worse, or neither."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

MIN_SAMPLES = 9
"""How many samples a verdict needs."""
SLOWER = 1.05
CONFIDENCE = 0.95

Values = tuple[float, float, float]
"""A sample of a figure: of the older library, of this tree's, and of the older one again."""


@dataclass(frozen=True)
class Change:
    """A figure of this tree beside the older commit's.

    Attributes:
      old, new: medians over the samples, in seconds or bytes.
      ratio: median of new / old, with both times of the older library.
      low, high: bounds of the median of old / old, of two processes in one turn, at 95 %.
      samples: how many there were.
    """

    old: float
    new: float
    ratio: float
    low: float
    high: float
    samples: int

    @property
    def verdict(self) -> str:
        """ "worse" or "better", if the difference is above 5 % and above the machine's noise."""
        if self.samples < MIN_SAMPLES:
            return "too few to say"
        if self.ratio > max(SLOWER, self.high):
            return "**worse**"
        return "better" if self.ratio < min(1 / SLOWER, self.low) else ""


def change(samples: Sequence[Values]) -> Change:
    """What a figure's values say, of one sample or more."""
    low, high = median_bounds([_ratio(again, old) for old, _, again in samples])
    return Change(
        statistics.median(old for old, _, _ in samples),
        statistics.median(new for _, new, _ in samples),
        # The older library comes before and after, so that a machine that slows down meets both.
        # Each ratio is of two single times: a mean of two has another median than one of them.
        statistics.median(_ratio(new, one) for old, new, again in samples for one in (old, again)),
        low,
        high,
        len(samples),
    )


def _ratio(value: float, base: float) -> float:
    """Infinite for more than nothing: a peak of memory may be 0."""
    if base > 0:
        return value / base
    return math.inf if value > base else 1.0


def median_bounds(values: Sequence[float]) -> tuple[float, float]:
    """Two of the values between which the median of their distribution lies, at 95 %.

    That is the interval of order statistics of the sign test: how many of n values lie below the
    median is binomial with p = 1/2.

    Args:
      values: at least one; of fewer than six the extremes are given, which promise less.
    """
    ordered, n = sorted(values), len(values)
    outside, k = 0.0, 0
    while k < (n - 1) // 2:
        outside += 2 * math.comb(n, k) / 2**n
        if outside > 1 - CONFIDENCE:
            break
        k += 1
    k = max(k - 1, 0)
    return ordered[k], ordered[n - 1 - k]

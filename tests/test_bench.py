"""What the bench says of figures: better, worse, or neither."""

from __future__ import annotations

import math
import random

from bench.change import change, median_bounds
from bench.rows import GROUPS


def _rounds(factor: float, noise: float) -> list[tuple[float, float, float]]:
    rng = random.Random(0)

    def taken(value: float) -> float:
        return value * (1 + rng.uniform(-noise, noise))

    return [(taken(1.0), taken(factor), taken(1.0)) for _ in range(9)]


def test_a_figure_that_grew_beyond_the_noise_is_worse() -> None:
    assert change(_rounds(1.2, noise=0.02)).verdict == "**worse**"


def test_a_figure_that_shrank_beyond_the_noise_is_better() -> None:
    assert change(_rounds(0.8, noise=0.02)).verdict == "better"


def test_a_difference_within_five_percent_or_within_the_noise_is_neither() -> None:
    assert change(_rounds(1.03, noise=0.001)).verdict == ""
    assert change(_rounds(1.1, noise=0.5)).verdict == ""


def test_a_machine_that_slows_down_steadily_makes_nothing_worse() -> None:
    slowing = [1.1**i for i in range(27)]
    rounds = [(slowing[i], slowing[i + 1], slowing[i + 2]) for i in range(0, 27, 3)]
    assert change(rounds).verdict == ""


def test_three_samples_are_too_few_for_a_verdict() -> None:
    assert change(_rounds(2.0, noise=0.02)[:3]).verdict == "too few to say"


def test_a_peak_of_memory_that_was_nothing_is_worse_only_if_it_is_something_now() -> None:
    assert change([(0.0, 1e6, 0.0)] * 9).ratio == math.inf
    assert change([(0.0, 0.0, 0.0)] * 9).ratio == 1.0


def test_noise_that_is_mostly_upwards_makes_nothing_better() -> None:
    rng = random.Random(0)
    rounds = [tuple(rng.lognormvariate(0, 1) for _ in range(3)) for _ in range(500)]
    assert abs(change(rounds).ratio - 1) < 0.1


def test_the_bounds_of_a_median_are_those_of_the_sign_test() -> None:
    assert median_bounds([9, 8, 7, 6, 5, 4, 3, 2, 1]) == (2, 8)
    assert median_bounds(list(range(1, 21))) == (6, 15)
    assert median_bounds([1, 2, 3]) == (1, 3)


def test_no_row_stands_twice() -> None:
    for group in GROUPS.values():
        figures = [(row.figure, getattr(row, "peer", None)) for row in group.rows]
        assert len(figures) == len(set(figures))

"""What the bench says of figures: better, worse, or neither."""

from __future__ import annotations

import json
import random
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from bench import against
from bench.against import change, median_bounds
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


def test_the_bounds_of_a_median_are_those_of_the_sign_test() -> None:
    assert median_bounds([9, 8, 7, 6, 5, 4, 3, 2, 1]) == (2, 8)
    assert median_bounds(list(range(1, 21))) == (6, 15)
    assert median_bounds([1, 2, 3]) == (1, 3)


def test_a_comparison_that_is_stopped_leaves_the_rounds_that_it_has_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    figure = GROUPS["bounds"].rows[0].figure
    rounds = iter([{figure: (1.0, 2.0, 1.0)}, {figure: (1.0, 4.0, 1.0)}])
    (tmp_path / "bench").mkdir()
    monkeypatch.setattr(against, "ROOT", tmp_path)
    monkeypatch.setattr(against, "_git", lambda *_: "abc")
    monkeypatch.setattr(against, "_sides", nullcontext)
    monkeypatch.setattr(against, "_round", lambda *_: next(rounds))
    monkeypatch.setattr(sys, "argv", ["against", "abc", "--only", "bounds"])
    with pytest.raises(StopIteration):
        against.main()
    found = json.loads((tmp_path / "bench" / "against.json").read_text())
    assert (found["rounds"], found["figures"][figure]["rounds"]) == (9, 2)
    assert found["figures"][figure]["ratio"] == 3.0
    assert "too few rounds to say" in (tmp_path / "bench" / "AGAINST.md").read_text()


def test_no_row_stands_twice() -> None:
    for group in GROUPS.values():
        figures = [(row.figure, getattr(row, "peer", None)) for row in group.rows]
        assert len(figures) == len(set(figures))

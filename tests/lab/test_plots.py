"""Plots of a comparison, where matplotlib is installed."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from jflow.lab.suite import plots
from jflow.lab.suite.measured import MeasuredResult
from tests.lab.test_suite import result

CASES = [
    result("contention", single=2.0, auto=1.0, heft=1.5),
    result("contention", single=3.0, auto=2.0, heft=None),
    result("clusters", single=1.0, auto=1.0, heft=0.8),
]
MEASURED = [MeasuredResult("mlp", 2, "auto", (0.1, 0.11, 0.12), 0.1, 0.1)]


def test_each_group_that_has_results_has_a_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra `lab` is not installed")
    drawn = plots.draw(CASES, MEASURED, tmp_path)
    assert set(drawn) == {"contention", "clusters", "measured"}
    for path in drawn.values():
        assert path.read_bytes().startswith(b"\x89PNG")


def test_the_names_of_lines_are_apart_and_below_the_top() -> None:
    crowded = plots._apart([1.0, 1.0, 90.0, 95.0, 95.0], 2.0, 100.0)
    assert crowded[:2] == [1.0, 2.0]
    assert crowded[-1] < 100.0
    assert all(after >= 2.0 * before for before, after in pairwise(crowded))


def test_without_matplotlib_there_are_no_plots(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(plots, "_FIGURE", None)
    assert plots.draw(CASES, MEASURED, tmp_path) == {}
    assert not [*tmp_path.iterdir()]

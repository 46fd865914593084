"""Optima that are kept as data, and the comparison with earlier measurements."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jflow.compiler.schedule import ONE_PORT, UNLIMITED, simulate
from jflow.compiler.schedule.strategies import OPTIONAL, choose
from jflow.lab import optima, reference

KEPT = Path(__file__).parent.parent.parent / "bench" / "placement" / "optima.json"


def test_what_is_kept_is_of_the_cases_and_of_the_graphs_that_were_solved() -> None:
    known = optima.read_optima(KEPT)
    assert {each.case for each in known} <= {*optima.cases()}
    assert sum(each.is_proven for each in known if each.case.network == ONE_PORT) >= 100
    for each in known[::40]:
        assert optima.digest_of(each.case.problem()) == each.digest


def test_no_schedule_is_below_a_kept_optimum() -> None:
    for each in optima.read_optima(KEPT)[::97]:
        problem = each.case.problem()
        found = simulate(problem, choose(problem, moves=300, exact=False).schedule).makespan
        assert found >= each.bound * (1 - 1e-6)


def test_optima_are_written_and_read_back(tmp_path) -> None:
    known = optima.read_optima(KEPT)[:20]
    path = tmp_path / "optima.json"
    assert optima.read_optima(path) == []
    optima.write_optima(path, known)
    assert optima.read_optima(path) == known


def test_a_wrong_optimum_is_found_by_proving_it_again(tmp_path) -> None:
    known = [each for each in optima.read_optima(KEPT) if each.case.network == ONE_PORT]
    right, path = known[0], tmp_path / "optima.json"
    low = replace(right, makespan=right.makespan * 0.9, bound=right.bound * 0.9)
    high = replace(right, makespan=right.makespan * 1.1, bound=right.bound * 1.1)
    for wrong, message in ((low, "at least"), (high, "is possible, less than the bound")):
        optima.write_optima(path, [wrong])
        (text,) = optima.check_optima(path, 1, seed=0)
        assert message in text
    optima.write_optima(path, [replace(right, digest="0" * 16)])
    assert "makes another graph" in optima.check_optima(path, 1, seed=0)[0]
    optima.write_optima(path, [right])
    assert optima.check_optima(path, 1, seed=0) == []


def test_an_optimum_of_one_solver_is_proven_by_another() -> None:
    """OR-tools' CP-SAT proved what is kept; HiGHS is what jflow ships."""
    known = [
        each
        for each in optima.read_optima(KEPT)
        if each.case.network == UNLIMITED and each.case.n <= 9 and each.is_proven
    ]
    for each in known[:3]:
        again = optima.prove(each.case)
        assert again.solver != each.solver
        assert again.is_proven
        assert again.makespan == pytest.approx(each.makespan, rel=1e-4)


def test_strategies_are_compared_with_proven_optima() -> None:
    known = [each for each in optima.read_optima(KEPT) if each.case.n <= 12]
    ratios = reference.small_ratios(known, limit=6)
    assert {*reference.TABLE_A} - {*OPTIONAL} <= ratios.keys()
    assert all(ratio >= 1 - 1e-4 for ratio in ratios.values())

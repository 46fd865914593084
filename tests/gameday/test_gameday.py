"""A game day, as `make gameday` runs it, in which nothing is lost, doubled or left over."""

from __future__ import annotations

from pathlib import Path

import pytest

from jflow.testing import ProgramProcess, no_leaks
from tests.gameday.day import N_CLOSURES, check_bob, run
from tests.gameday.site import MARK, LeftOver


@pytest.mark.long
def test_the_innocent_end_a_day_of_faults_with_exact_results(tmp_path: Path) -> None:
    with no_leaks():
        results = run(tmp_path)
    assert len(results.events) == 8
    assert results.bob["n_closures"] > 8 * N_CLOSURES
    assert results.ann["refused"]["variables"] > 1


def test_a_closure_that_is_lost_or_doubled_is_found() -> None:
    n = 3 * N_CLOSURES
    right = n * (n - 1) // 2
    check_bob([n, n, n, right], 3)
    for values in ([n, n - 1, n, right], [n, n, n + 1, right], [n, n, n, right + 1]):
        with pytest.raises(AssertionError, match="bob"):
            check_bob(values, 3)


def test_a_process_that_is_left_over_is_found(tmp_path: Path) -> None:
    left_over = LeftOver(tmp_path)
    with ProgramProcess(["-c", "input()"], {MARK: f"{tmp_path}/users.json"}) as process:
        assert left_over.look() == [process.pid]
    left_over.check()

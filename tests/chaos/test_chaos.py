"""The short runs; `make chaos` are the long ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.chaos import Least, run_chaos
from tests.chaos.coordinator import run_coordinated
from tests.chaos.counts import AT_LEAST_ONCE
from tests.chaos.faults import Faults
from tests.chaos.loops import run_loops
from tests.chaos.saves import TASKS, run_saves


def test_no_element_is_lost_or_doubled_when_clients_are_killed(tmp_path: Path) -> None:
    outcome = run_chaos(Least(n_kills=6, n_gets=50), seed=0, folder=tmp_path)
    assert not outcome.findings.violations, outcome
    assert outcome.n_kills >= 6
    assert outcome.findings.n_delivered >= 50


def test_a_task_that_is_killed_in_a_save_leaves_the_old_or_the_new_checkpoint(
    tmp_path: Path,
) -> None:
    kills = [(TASKS[0], "checkpoint.manifest_written")]
    outcome = run_saves(1, seed=0, folder=tmp_path, kills=kills)
    assert not outcome.violations, outcome.violations
    assert outcome.n_kills == 1


def test_a_loop_whose_task_is_killed_loses_one_element_and_counts_none_twice() -> None:
    outcome = run_loops(2, seed=0, n_elements=100_000)
    assert not outcome.violations, outcome.violations
    assert outcome.n_counted >= 40


def test_counters_are_exact_whatever_is_killed(tmp_path: Path) -> None:
    faults = Faults(worker_kills=10, ps_restarts=2, coordinator_stops=1)
    outcome = run_coordinated(faults, seed=0, folder=tmp_path)
    assert not outcome.violations, outcome
    assert outcome.n_faults == 13
    assert outcome.n_whole > 0


@pytest.mark.long
def test_at_least_once_nothing_is_lost(tmp_path: Path) -> None:
    faults = Faults(worker_kills=20, coordinator_kills=1)
    outcome = run_coordinated(faults, seed=0, folder=tmp_path, effects=AT_LEAST_ONCE)
    assert not outcome.violations, outcome
    assert outcome.n_whole == outcome.n_rounds

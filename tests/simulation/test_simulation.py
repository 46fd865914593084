"""Schedules of a whole cluster, by fixed seeds: no history breaks a rule, and nothing is left over.

`make chaos` runs more of them, with new seeds; `python -m tests.simulation` runs any by hand.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.mutations import MUTATIONS, mutated
from tests.simulation.schedules import run_schedule, run_schedules

N_SCHEDULES = 240
"""As many as about 20 s hold."""
N_AT_A_TIME = 40


@pytest.mark.parametrize("first", range(0, N_SCHEDULES, N_AT_A_TIME))
def test_what_clients_see_is_what_a_cluster_may_do(first: int) -> None:
    failed = [one for one in run_schedules(first, first + N_AT_A_TIME) if one.violations]
    assert not failed, "\n".join(one.report() for one in failed)


SEEDS = (3, 11, 12)
"""Of schedules with various clients and faults."""


def test_a_seed_gives_the_same_events_again() -> None:
    once, again = [[run_schedule(seed) for seed in SEEDS] for _ in range(2)]
    assert [one.digest for one in once] == [one.digest for one in again]
    assert len({one.digest for one in once}) == len(SEEDS)


def test_a_seed_gives_the_same_events_in_another_process_and_with_other_hashes() -> None:
    program = (
        "from tests.simulation.schedules import run_schedule\n"
        f"for seed in {SEEDS}: print(run_schedule(seed).digest)"
    )
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True
    )
    assert ran.stdout.split() == [run_schedule(seed).digest for seed in SEEDS]


def test_a_replay_tells_every_event() -> None:
    lines: list[str] = []
    outcome = run_schedule(SEEDS[0], lines.append)
    assert outcome.digest == run_schedule(SEEDS[0]).digest
    kinds = {line.split()[1] for line in lines}
    assert {"schedule", "message", "heal"} <= kinds


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_fault_that_is_put_into_jflow_is_found(name: str) -> None:
    seed = MUTATIONS[name].seed
    with mutated(name):
        outcome = run_schedule(seed)
    assert outcome.violations, f"seed {seed} does not find it any more; see mutations.py"
    assert f"python -m tests.simulation --seed {seed}" in outcome.report()
    assert not run_schedule(seed).violations

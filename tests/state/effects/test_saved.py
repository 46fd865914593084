"""What checkpoints keep of steps that were applied once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import jflow as tf
from jflow.state.effects import Effect, SupersededError
from jflow.testing import PATIENCE_S, BackendUnderTest, Pause, failpoints
from tests.state.effects.attempts import Counters, attempt, servers, started
from tests.state.effects.test_steps import HERE, on

STEP = Effect("client of checkpoints", 0, 0)


def saved(session: Any, path: Path) -> str:
    return str(tf.train.Saver().save(session, str(path / "model")))


@HERE
def test_a_restored_step_is_not_applied_again_and_a_lost_one_is(
    backend: BackendUnderTest, tmp_path: Path
) -> None:
    step = replace(STEP, client=f"{STEP.client} {backend}")
    with backend.session() as session:
        made = Counters(*on(backend))
        session.run(tf.global_variables_initializer())
        attempt(session, made.both, step)
        path = saved(session, tmp_path)
        attempt(session, made.both, replace(step, sequence=1))
        tf.train.Saver().restore(session, path)
        assert session.run(made.values) == [1.0, 1.0]
        for sequence in (0, 1):
            assert attempt(session, made.both, replace(step, sequence=sequence, attempt=2)) == 1.0
        assert session.run(made.values) == [2.0, 2.0]


def test_other_processes_know_what_was_applied_from_the_checkpoint(tmp_path: Path) -> None:
    made = Counters()
    with servers() as running, tf.Session(running[-1].target) as session:
        session.run(tf.global_variables_initializer())
        for sequence in range(3):
            attempt(session, made.both, replace(STEP, sequence=sequence))
        path = saved(session, tmp_path)
    with servers() as running, tf.Session(running[-1].target) as session:
        tf.train.Saver().restore(session, path)
        for sequence in range(4):
            assert attempt(session, made.both, replace(STEP, sequence=sequence, attempt=2)) == 1.0
        assert session.run(made.values) == [4.0, 4.0]


@pytest.mark.parametrize("where", ["master.before_commit", "worker.before_effect"])
def test_a_checkpoint_has_a_step_with_its_effect_on_all_tasks_or_not_at_all(
    tmp_path: Path, where: str
) -> None:
    made = Counters()
    with servers(2, 2) as running, tf.Session(running[-1].target) as session:
        session.run(tf.global_variables_initializer())
        with tf.Session(running[-2].target) as other, failpoints({where: Pause()}) as points:
            attempts = started(other, made.both, STEP)
            points.wait_until_reached(where)
            # A save of all sessions' steps waits for the step that is in the middle of its writes.
            path = str(tmp_path / "model")
            with ThreadPoolExecutor(1) as pool:
                saving = pool.submit(tf.checkpoint.save, path, session, consistent=True)
                points.release(where)
                assert attempts.result(PATIENCE_S) == [1.0]
                saving.result(PATIENCE_S)
        tf.train.Saver().restore(session, path)
        assert attempt(session, made.both, STEP.again()) == 1.0
        assert session.run(made.values) == [1.0, 1.0]


def test_an_attempt_that_goes_on_after_it_was_superseded_does_not_hold_up_checkpoints(
    tmp_path: Path,
) -> None:
    step = replace(STEP, client=f"{STEP.client} that are not held up")
    made = Counters()
    with servers() as running, tf.Session(running[-1].target) as session:
        session.run(tf.global_variables_initializer())
        with failpoints({"worker.before_run": Pause(times=2)}) as points:
            late = started(session, made.both, step)
            points.wait_until_reached("worker.before_run", times=2)
            assert attempt(session, made.both, step.again()) == 1.0
            points.release("worker.before_run")
            with pytest.raises(SupersededError):
                late.result(PATIENCE_S)
        config = tf.ConfigProto(operation_timeout_in_ms=20_000)
        with tf.Session(running[-1].target, config=config) as saving:
            saved(saving, tmp_path)
        assert session.run(made.values) == [1.0, 1.0]

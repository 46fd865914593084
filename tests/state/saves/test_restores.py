"""Restores beside steps of other sessions, which read one task and write another one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jflow as tf
from jflow.errors import OpError
from jflow.state.core.unpaused import UnpausedMasters
from jflow.state.saves import Pauses, pauses
from jflow.testing import start_servers, wait_until
from jflow.training.checkpoints.saver import states_to_save

PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"
SAVED, OTHER, ADDED = 1, 2, 10


class Parted:
    """Two sessions, and a step of one that waits for a queue between a read and a write.

    Args:
      stack: what closes servers, sessions and threads.
      path: of the checkpoint, in which both variables are `SAVED`.

    Attributes:
      session: the session that does not run the step.
    """

    def __init__(self, stack: ExitStack, path: Path) -> None:
        servers = start_servers(stack.enter_context, {"ps": 1, "worker": 1})
        self._threads = stack.enter_context(ThreadPoolExecutor(2))
        with tf.device(PS):
            queue = tf.FIFOQueue(1, tf.int32, ((),), shared_name="between")
            self._first = tf.Variable(np.int32(SAVED), name="first")
            begun = tf.Variable(np.int32(0), name="begun")
            read = self._first.read_value()
            with tf.control_dependencies([read.op]):
                count = begun.assign_add(1)
            with tf.control_dependencies([count.op]):
                added = queue.dequeue()
        with tf.device(WORKER):
            self._second = tf.Variable(np.int32(SAVED), name="second")
            self._step = self._second.assign(read + added)
        self._begun, self._put = begun, queue.enqueue(ADDED)
        self._assign = self._first.assign(OTHER)
        self.session, self._other = (
            stack.enter_context(tf.Session(server.target)) for server in servers
        )
        self._path, self._states = str(path), states_to_save([self._first, self._second])
        self.session.run(tf.global_variables_initializer())
        self.session.save_state(self._path, self._states)
        self.session.run(self._assign)

    def begin_step(self) -> Future[Any]:
        """Begins the step; returns when it has read."""
        step = self._threads.submit(self._other.run, self._step)
        wait_until(lambda: step.done() or self.session.run(self._begun) > 0, "the step's read")
        return step

    def end_step(self, step: Future[Any]) -> None:
        """Lets the step write, and waits for its end."""
        self.session.run(self._put)
        wait_until(step.done, "the end of the step")
        assert step.result() == OTHER + ADDED

    def begin_restore(self) -> Future[Any]:
        return self._threads.submit(self.session.restore_state, self._path, self._states)

    def variables(self) -> list[int]:
        return [int(value) for value in self.session.run([self._first, self._second])]


@pytest.fixture
def parted(tmp_path: Path) -> Iterator[Parted]:
    with ExitStack() as stack:
        yield Parted(stack, tmp_path / "model")


def test_a_restore_waits_for_steps_of_other_sessions(
    parted: Parted, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[OpError] = []
    monkeypatch.setattr(Pauses, "failed", lambda self, seconds, error: failed.append(error))
    step = parted.begin_step()
    restoring = parted.begin_restore()
    wait_until(lambda: bool(failed) or restoring.done(), "an attempt")
    assert not restoring.done()
    parted.end_step(step)
    wait_until(restoring.done, "the restore")
    restoring.result()
    assert parted.variables() == [SAVED] * 2, "the step has written what it had read before"


def test_a_restore_goes_on_beside_steps_that_do_not_end(
    parted: Parted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pauses, "PATIENCE_FOR_OTHERS_S", 0.1)
    step = parted.begin_step()
    restoring = parted.begin_restore()
    with caplog.at_level(logging.WARNING, logger="jflow"):
        wait_until(restoring.done, "the restore")
    assert "beside steps of other sessions" in caplog.text
    assert parted.variables() == [SAVED] * 2
    parted.end_step(step)
    assert parted.variables() == [SAVED, OTHER + ADDED]


@pytest.mark.parametrize("timeout", [0.4, 1.4])
def test_a_restore_that_has_little_time_goes_on_beside_steps_that_do_not_end(
    parted: Parted, timeout: float
) -> None:
    step = parted.begin_step()
    parted.session._settings._timeout = timeout
    parted.begin_restore().result()
    parted.session._settings._timeout = None
    assert parted.variables() == [SAVED] * 2
    parted.end_step(step)


def test_a_restore_in_a_pause_that_ended_early_is_done_and_says_so(
    parted: Parted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended = UnpausedMasters.end_pause
    monkeypatch.setattr(
        UnpausedMasters, "end_pause", lambda self, name: ended(self, name) and False
    )
    with caplog.at_level(logging.WARNING, logger="jflow"):
        parted.begin_restore().result()
    assert "beside steps of other sessions" in caplog.text
    assert parted.variables() == [SAVED] * 2

"""A local session's core: what a server's has, and what only a local session shows."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

import jflow as tf
from jflow.base.cluster import LOCAL_TASK
from jflow.base.deadline import FOREVER, Deadline
from jflow.base.drivers import ThreadDriver
from jflow.client.runtime.local import LocalBackend
from jflow.errors import DeadlineExceededError
from jflow.state.moves import Gate, StateId
from jflow.state.resources import Containers
from jflow.task.execution.local_task import LocalTask


@pytest.mark.parametrize("epochs", [(2, 1), (1, 2)])
def test_a_checkpoint_of_another_claim_is_restored(epochs: tuple[int, int], tmp_path: Path) -> None:
    prefix = str(tmp_path / "model")
    for epoch in epochs:
        with tf.Graph().as_default(), tf.Session() as session:
            variable = tf.Variable(1.0, name="v")
            session.run(variable.initializer)
            backend = session._backend
            assert isinstance(backend, LocalBackend)
            assert backend.claim("my run", epoch, FOREVER) == epoch
            saver = tf.train.Saver()
            if (tmp_path / "model.index").exists():
                saver.restore(session, prefix)
            saver.save(session, prefix)


def test_state_that_nothing_refers_to_is_freed_at_once() -> None:
    containers = Containers(LOCAL_TASK)
    task, state = LocalTask(containers, {}), weakref.ref(containers)
    gc.disable()
    try:
        del task, containers
        assert state() is None
    finally:
        gc.enable()


def test_waits_that_end_leave_nothing_at_the_gate() -> None:
    driver = ThreadDriver()
    gate = Gate(driver)
    state = StateId("/job:localhost/task:0/device:CPU:0", "variable", "", "v")
    use = gate.directory.add(frozenset({state}), [frozenset({state})])
    gate.directory.pause("save", [state])
    for _ in range(3):
        with pytest.raises(DeadlineExceededError):
            driver.run(gate.enter(use, object()), Deadline(0.01), "waiting")
    assert not gate._change
    assert not gate.waiting

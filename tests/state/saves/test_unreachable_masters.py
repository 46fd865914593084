"""Consistent saves while the task that saves cannot reach a master whose steps go on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import jflow as tf
from jflow.base.cluster import Task
from jflow.errors import FailedPreconditionError
from jflow.net.protocol.identity import ServerIdentity
from jflow.state.core.unpaused import UnpausedMasters
from jflow.state.moves import StateId
from jflow.testing import FaultProxy
from jflow.training.checkpoints.saver import states_to_save

PS, OTHER_PS = "/job:ps/task:0", "/job:ps/task:1"
SAVER, MASTER, LOST = Task("worker", 0), Task("worker", 1), Task("worker", 2)
STATE, OTHER_STATE = (
    StateId(f"{PS}/device:CPU:0", "variable", "", name) for name in ("one", "other")
)


class Cut:
    """Two parameter servers and two workers, the second of which the first reaches by a proxy.

    Attributes:
      saver, master: the targets of the workers.
      way: the proxy.
    """

    def __init__(self, stack: ExitStack) -> None:
        tasks = [("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1)]
        servers = [
            stack.enter_context(tf.train.Server({job: {index: "127.0.0.1:0"}}, job, index))
            for job, index in tasks
        ]
        addresses = [
            server.cluster_spec.task_address(*task)
            for server, task in zip(servers, tasks, strict=True)
        ]
        self.way = stack.enter_context(FaultProxy(addresses[3]))
        for server in servers:
            last = self.way.address if server is servers[2] else addresses[3]
            server.connect({"ps": addresses[:2], "worker": [addresses[2], last]})
        self.saver, self.master = servers[2].target, servers[3].target


@pytest.fixture(scope="module")
def cut() -> Iterator[Cut]:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("JFLOW_LIVENESS_S", "2")
        # The way has an address of its own, by which the worker is not known to itself.
        patch.setattr(ServerIdentity, "_difference", lambda *_: ("", "", ""))
        cut = Cut(stack)
        cut.way.refuse()
        yield cut


def counters() -> tuple[list[tf.Variable], tf.Operation]:
    """A counter on each parameter server, and a step that counts both."""
    variables = []
    for ps in (PS, OTHER_PS):
        with tf.device(ps):
            variables.append(tf.Variable(np.int32(0), name="counter"))
    return variables, tf.group(*(variable.assign_add(1) for variable in variables))


def test_a_save_is_refused_while_a_master_counts_that_only_the_saver_cannot_reach(
    cut: Cut, tmp_path: Path
) -> None:
    variables, train = counters()
    states, path = states_to_save(variables), str(tmp_path / "model")
    with tf.Session(cut.saver) as session:
        with tf.Session(cut.master) as other:
            other.run(tf.global_variables_initializer())
            other.run(train)
            said = r"steps of /job:worker/task:1 change variable 'counter.*cannot reach it"
            with pytest.raises(tf.errors.UnavailableError, match=f"consistent save.*{said}"):
                session.save_state(path, states, is_consistent=True)
            assert not list(tmp_path.iterdir())
            session.save_state(path, states)  # one that is not
            assert other.run(train) is None  # nothing is held back
        # The other master has released its plans.
        session.save_state(path, states, is_consistent=True)
    assert tf.train.load_variable(path, variables[0].op.name) == 2


def test_a_task_refuses_a_pause_only_of_what_an_unpaused_master_changes() -> None:
    masters = UnpausedMasters()
    masters.registered(1, SAVER, [STATE])
    masters.registered(2, MASTER, [OTHER_STATE])
    masters.begin_pause("first", [SAVER], [STATE])
    assert masters.end_pause("first")
    with pytest.raises(FailedPreconditionError, match=re.escape(f"steps of {MASTER} change")):
        masters.begin_pause("second", [SAVER], [STATE, OTHER_STATE])
    assert not masters.end_pause("second")
    masters.released(2)
    masters.begin_pause("third", [SAVER], [STATE, OTHER_STATE])
    assert masters.end_pause("third")


def test_a_pause_does_not_last_if_an_unpaused_master_registers_steps() -> None:
    masters = UnpausedMasters()
    masters.begin_pause("first", [SAVER, MASTER], [STATE])
    masters.registered(1, MASTER, [STATE])
    masters.registered(2, LOST, [OTHER_STATE])
    assert masters.end_pause("first")
    masters.begin_pause("second", [SAVER, MASTER], [STATE])
    masters.registered(3, None, [STATE])
    masters.released(3)
    assert not masters.end_pause("second"), "its steps may have run"

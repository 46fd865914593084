"""Tasks that leave a running cluster and that join it: nothing is lost, all find what has moved."""

from __future__ import annotations

import operator
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jflow as tf
from jflow.state.resources import moving
from jflow.testing import PATIENCE_S, wait_until
from tests.task.server.members import (
    PS0,
    PS1,
    WORKER_0,
    WORKER_1,
    ChangingCluster,
    changing_cluster,
)

cluster = pytest.fixture(changing_cluster)


class Pinned:
    """A graph with a variable and a queue that are pinned to a task."""

    def __init__(self, task: str) -> None:
        self.graph = tf.Graph()
        with self.graph.as_default(), tf.device(task):
            self.v = tf.Variable(np.float32(0.0), name="v")
            self.add = self.v.assign_add(1.0)
            self.queue = tf.FIFOQueue(10, [tf.int32], shapes=[()], shared_name="q", name="q")
            self.put = self.queue.enqueue(7)
            self.take = self.queue.dequeue()
            self.double = tf.placeholder(tf.float32, ()) * 2.0
            self.init = self.v.initializer


def device_of(session: tf.Session, tensor: Any) -> str:
    return str(session.placement(tensor)[tensor.op])


def test_what_was_on_a_task_that_leaves_is_on_its_successor_for_all_sessions(
    cluster: ChangingCluster,
) -> None:
    first, second, late = Pinned(PS1), Pinned(PS1), Pinned(PS1)
    with (
        tf.Session(cluster.target(WORKER_0), graph=first.graph) as session,
        tf.Session(cluster.target(WORKER_1), graph=second.graph) as other,
    ):
        session.run([first.init])
        assert session.run(first.add) == other.run(second.add) - 1 == 1.0
        session.run(first.put)
        other.run(second.put)
        members = cluster.drain(PS1)
        assert [*members.successors.items()] == [(PS1, PS0)]
        assert session.run(first.add) == 3.0
        assert other.run(second.add) == 4.0
        assert [session.run(first.take), other.run(second.take)] == [7, 7]
        assert device_of(session, first.add).startswith(PS0)
        with tf.Session(cluster.target(WORKER_1), graph=late.graph) as new:
            assert new.run(late.add) == 5.0, "a request for a task that has left means its heir"
            assert device_of(new, late.add).startswith(PS0)


def test_steps_that_compute_on_a_task_that_leaves_compute_on_its_successor(
    cluster: ChangingCluster,
) -> None:
    pinned = Pinned(WORKER_1)
    x = pinned.double.op.inputs[0]
    with tf.Session(cluster.target(WORKER_0), graph=pinned.graph) as session:
        assert session.run(pinned.double, {x: 4.0}) == 8.0
        cluster.drain(WORKER_1)
        assert session.run(pinned.double, {x: 5.0}) == 10.0


def test_a_session_whose_master_leaves_is_told_so(cluster: ChangingCluster) -> None:
    pinned = Pinned(PS0)
    with tf.Session(cluster.target(WORKER_1), graph=pinned.graph) as session:
        session.run(pinned.init)
        cluster.drain(WORKER_1, PS1)
        with pytest.raises(tf.errors.UnavailableError):
            session.run(pinned.add)
    with tf.Session(cluster.target(WORKER_0), graph=pinned.graph) as session:
        assert session.run(pinned.add) == 1.0


def test_where_state_is_that_requests_no_device_changes_when_that_task_leaves(
    cluster: ChangingCluster,
) -> None:
    free, late = Pinned(""), Pinned("")
    with tf.Session(cluster.target(WORKER_0), graph=free.graph) as session:
        session.run(free.init)
        assert session.run(free.add) == 1.0
        assert device_of(session, free.add).startswith(PS0)
        members = cluster.drain(PS0)
        assert (members.state_task, members.leader) == (PS1, PS1)
        assert session.run(free.add) == 2.0
    with tf.Session(cluster.target(WORKER_1), graph=late.graph) as session:
        assert session.run(late.add) == 3.0
    members = cluster.drain(WORKER_1)
    assert members.epoch == 3, "a leader hands over before it leaves"


@pytest.mark.parametrize("restores", [False, True], ids=["save", "restore"])
def test_a_checkpoint_of_what_was_on_a_task_that_has_just_left(
    cluster: ChangingCluster, tmp_path: Path, restores: bool
) -> None:
    pinned = Pinned(PS1)
    with tf.Session(cluster.target(WORKER_0), graph=pinned.graph) as session:
        session.run(pinned.init)
        saver = tf.train.Saver([pinned.v])
        path = saver.save(session, str(tmp_path / "model"))
        session.run(pinned.add)
        cluster.drain(PS1)
        # The session does not know yet that the task has left.
        if restores:
            saver.restore(session, path)
        else:
            path = saver.save(session, path)
            session.run(pinned.add)
            saver.restore(session, path)
        assert session.run(pinned.v) == float(not restores)


def test_state_that_belongs_to_one_session_keeps_its_task(cluster: ChangingCluster) -> None:
    graph = tf.Graph()
    with graph.as_default(), tf.device(PS1):
        queue = tf.FIFOQueue(3, [tf.int32], shapes=[()])
        put, size = queue.enqueue(1), queue.size()
    with tf.Session(cluster.target(WORKER_0), graph=graph) as session:
        session.run(put)
        with pytest.raises(tf.errors.FailedPreconditionError, match="belongs to one session"):
            cluster.drain(PS1)
        session.run(put)
        assert session.run(size) == 2, "it goes on as before"
    cluster.drain(PS1)


def test_state_of_every_kind_leaves_in_as_many_parts_as_it_needs(
    cluster: ChangingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "PART_BYTES", 12)
    graph = tf.Graph()
    with graph.as_default(), tf.device(PS1):
        values = [np.arange(n, dtype=np.float32) for n in (1, 2, 3, 9)]
        variables = [tf.Variable(value, name=f"v{n}") for n, value in enumerate(values)]
        queue = tf.FIFOQueue(9, [tf.int32], shapes=[()], shared_name="q")
        sums = tf.ConditionalAccumulator(tf.float32, shape=(), shared_name="sums")
        put, take = queue.enqueue(3), queue.dequeue()
        add, mean = sums.apply_grad(np.float32(2.0), local_step=0), sums.take_grad(1)
        init = [one.initializer for one in variables]
    with tf.Session(cluster.target(WORKER_0), graph=graph) as session:
        session.run(init)
        session.run([put, add])
        cluster.drain(PS1)
        for found, value in zip(session.run(variables), values, strict=True):
            np.testing.assert_array_equal(found, value)
        assert [session.run(take), session.run(mean)] == [3, 2.0]
    assert not cluster.servers[PS0].worker.moves._holds


def test_a_worker_leaves_with_the_sessions_of_its_own(cluster: ChangingCluster) -> None:
    graph = tf.Graph()
    with graph.as_default(), tf.device(WORKER_1):
        queue = tf.FIFOQueue(3, [tf.int32], shapes=[()])
        put = queue.enqueue(1)
    with tf.Session(cluster.target(WORKER_1), graph=graph) as session:
        session.run(put)
        cluster.drain(WORKER_1)


def test_a_step_that_does_not_end_keeps_its_task(cluster: ChangingCluster) -> None:
    graph = tf.Graph()
    with graph.as_default(), tf.device(PS1):
        v = tf.Variable(0, name="v")
        queue = tf.FIFOQueue(3, [tf.int32], shapes=[()], shared_name="q")
        blocked = v.assign_add(queue.dequeue())
        put, init = queue.enqueue(5), v.initializer
    with (
        tf.Session(cluster.target(WORKER_0), graph=graph) as session,
        tf.Session(cluster.target(WORKER_1), graph=graph) as other,
    ):
        session.run(init)
        started = session.run_async(blocked)
        wait_until(lambda: cluster.servers[PS1].worker.running.n_begun > 1)
        with pytest.raises(tf.errors.DeadlineExceededError, match="did not end within"):
            cluster.drain(PS1, hold_s=0.4)
        other.run(put)
        assert started.result(PATIENCE_S) == 5
        cluster.drain(PS1)
        assert other.run(v) == 5


def test_what_cannot_leave_is_refused_before_anything_moves(cluster: ChangingCluster) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="no task /job:ps/task:7"):
        cluster.drain("/job:ps/task:7")
    with pytest.raises(tf.errors.InvalidArgumentError, match="cannot be its own successor"):
        cluster.drain(PS1, PS1)
    cluster.servers[WORKER_1].stop()
    with pytest.raises(tf.errors.UnavailableError, match="worker/task:1"):
        cluster.drain(PS1, seconds=1.0)


def test_without_a_file_for_the_list_no_task_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JFLOW_MEMBERS", raising=False)
    with ExitStack() as stack:
        cluster = ChangingCluster(stack)
        with pytest.raises(tf.errors.FailedPreconditionError, match="--members DIR"):
            cluster.drain(PS1)


def test_no_update_is_lost_while_tasks_leave_and_join(cluster: ChangingCluster) -> None:
    pinned = Pinned(PS1)
    n_threads, stops = 4, threading.Event()
    counts = [0] * n_threads

    def count(number: int) -> None:
        target = cluster.target((PS0, WORKER_0)[number % 2])
        with tf.Session(target, graph=pinned.graph) as session:
            while not stops.is_set():
                session.run(pinned.add.op)
                counts[number] += 1

    with tf.Session(cluster.target(WORKER_0), graph=pinned.graph) as session:
        session.run(pinned.init)
        threads = [threading.Thread(target=count, args=(n,)) for n in range(n_threads)]
        for thread in threads:
            thread.start()
        try:
            for n in range(1, 4):
                reached = [count + 50 for count in counts]
                wait_until(lambda reached=reached: all(map(operator.gt, counts, reached)))
                joined = cluster.join("ps")
                assert str(joined._task) == f"/job:ps/task:{n + 1}"
                cluster.drain(f"/job:ps/task:{n}", f"/job:ps/task:{n + 1}")
        finally:
            stops.set()
            for thread in threads:
                thread.join(PATIENCE_S)
        assert session.run(pinned.v) == sum(counts)
        assert device_of(session, pinned.add).startswith("/job:ps/task:4")


def test_a_task_that_joins_is_seen_by_new_placements_and_changes_no_old_ones(
    cluster: ChangingCluster,
) -> None:
    free = Pinned("")
    with tf.Session(cluster.target(WORKER_0), graph=free.graph) as session:
        session.run(free.init)
        names = {device.name for device in session.list_devices()}
        joined = cluster.join("aaa")
        assert str(joined._task) == "/job:aaa/task:0", "a job that sorts before all others"
        wait_until(lambda: {one.name for one in session.list_devices()} > names)
        new = Pinned("/job:aaa/task:0")
        with tf.Session(cluster.target(WORKER_1), graph=new.graph) as other:
            other.run(new.init)
            assert device_of(other, new.add).startswith("/job:aaa")
        assert session.run(free.add) == 1.0
        assert device_of(session, free.add).startswith(PS0)
        late = Pinned("")
        with tf.Session(joined.target, graph=late.graph) as other:
            assert other.run(late.add) == 2.0, "state that requests no device is where it was"


def test_a_process_at_another_address_takes_the_place_of_one_that_has_ended(
    cluster: ChangingCluster,
) -> None:
    pinned = Pinned(PS1)
    with tf.Session(cluster.target(WORKER_0), graph=pinned.graph) as session:
        session.run(pinned.init)
    with pytest.raises(tf.errors.AlreadyExistsError, match="is up at"):
        cluster.join("ps", index=1)
    former = cluster.servers[PS1]
    former.stop()
    joined = cluster.join("ps", index=1)
    assert joined.target != former.target
    with tf.Session(cluster.target(WORKER_1), graph=pinned.graph) as session:
        session.run(pinned.init)
        assert session.run(pinned.add) == 1.0
        assert device_of(session, pinned.add).startswith(PS1)
    assert [str(one) for one in joined.worker.containers.variables()]


def test_a_leader_that_restarts_has_its_list_and_tells_those_that_missed_it(
    cluster: ChangingCluster,
) -> None:
    cluster.join("worker")
    leader, worker = cluster.servers[PS0], cluster.servers[WORKER_1]
    for server in (leader, worker):
        server.stop()
    with pytest.raises(tf.errors.UnavailableError, match="changes the list of members"):
        cluster.drain(PS1, seconds=1.0)
    for server in (leader, worker):
        server.start()
    assert leader.cluster_spec.num_tasks("worker") == 3
    wait_until(lambda: worker.cluster_spec.num_tasks("worker") == 3)
    cluster.drain(PS1)
    assert leader.cluster_spec.num_tasks("ps") == 1


def test_a_task_that_has_left_does_not_come_back_under_its_name(cluster: ChangingCluster) -> None:
    spec = cluster.servers[PS1].cluster_spec
    cluster.drain(PS1)
    with pytest.raises(tf.errors.FailedPreconditionError, match="has left, and /job:ps/task:0"):
        tf.train.Server(spec, "ps", 1)
    with pytest.raises(tf.errors.AlreadyExistsError, match="join without an index"):
        cluster.join("ps", index=1)
    assert str(cluster.join("ps")._task) == "/job:ps/task:2"

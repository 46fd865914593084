"""Tasks that leave a cluster while calls fail, and while others save, restore and move state."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import jflow as tf
from jflow.base.cluster import Target
from jflow.base.deadline import Deadline
from jflow.net.wire import connect
from jflow.state.core import ClusterState, TaskMembers
from jflow.state.core.moves import StateMoves
from jflow.state.members import MemberList
from jflow.state.moves import StateId
from jflow.state.quotas import Account, Quotas
from jflow.task.server.loop import SERVERS
from jflow.task.server.members_file import StoredMembers
from jflow.testing import PATIENCE_S, Pause, failpoints, wait_until
from tests.task.server.members import (
    PS0,
    PS1,
    WORKER_0,
    WORKER_1,
    ChangingCluster,
    changing_cluster,
)
from tests.task.server.test_members import Pinned, device_of

cluster = pytest.fixture(changing_cluster)


def test_the_copy_counts_even_if_the_successor_was_not_told_that_the_state_moved(
    cluster: ChangingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task that could say so has left."""
    finish, heir = StateMoves._finish, cluster.servers[PS0].worker.moves._state
    lost = []

    def finish_unless_lost(self: StateMoves, name: str, *, has_moved: bool) -> None:
        if self._state is heir and has_moved and not lost:
            lost.append(name)
            raise tf.errors.UnavailableError("the test lost the call")
        finish(self, name, has_moved=has_moved)

    pinned = Pinned(PS1)
    with tf.Session(cluster.target(WORKER_0), graph=pinned.graph) as session:
        session.run(pinned.init)
        session.run(pinned.add)
        monkeypatch.setattr(StateMoves, "_finish", finish_unless_lost)
        cluster.drain(PS1)
        assert lost
        options = tf.RunOptions(timeout_in_ms=4_000)
        assert session.run(pinned.add, options=options) == 2.0


def test_a_leader_leaves_only_once_the_next_one_has_the_list(
    cluster: ChangingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, may_write = StoredMembers.write, threading.Event()

    def write_late(self: StoredMembers, members: MemberList) -> None:
        if self._path.name == "ps-1.json":
            may_write.wait(PATIENCE_S)
        write(self, members)

    monkeypatch.setattr(StoredMembers, "write", write_late)
    with ThreadPoolExecutor(1) as pool:
        draining = pool.submit(cluster.drain, PS0)
        assert not cluster.servers[PS0].join(1.0), "it has left, and no other task can"
        may_write.set()
        assert draining.result(PATIENCE_S).leader == PS1
    assert cluster.drain(WORKER_1).leader == PS1


def test_a_task_leaves_once_the_steps_that_it_started_elsewhere_have_ended(
    cluster: ChangingCluster,
) -> None:
    pinned = Pinned(PS0)
    with (
        tf.Session(cluster.target(WORKER_1), graph=pinned.graph) as session,
        tf.Session(cluster.target(WORKER_0), graph=pinned.graph) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        started = session.run_async(pinned.take)
        wait_until(lambda: cluster.servers[PS0].worker.running.n_begun > 0)
        draining = pool.submit(cluster.drain, WORKER_1)
        wait_until(lambda: WORKER_1 not in map(str, cluster.servers[PS0].cluster_spec.tasks()))
        assert not cluster.servers[WORKER_1].join(0.5)
        other.run(pinned.put)
        assert started.result(PATIENCE_S) == 7
        draining.result(PATIENCE_S)


def saving(pinned: Pinned) -> Any:
    with pinned.graph.as_default():
        return tf.train.Saver([pinned.v])


def test_a_restore_that_a_drain_overtakes_restores_what_has_moved(
    cluster: ChangingCluster, tmp_path: Path
) -> None:
    pinned, point = Pinned(PS1), "worker.before_restore"
    saver, prefix = saving(pinned), str(tmp_path / "saved")
    with (
        tf.Session(cluster.target(WORKER_0), graph=pinned.graph) as session,
        ThreadPoolExecutor(2) as pool,
    ):
        session.run(pinned.init)
        saver.save(session, prefix, write_meta_graph=False)
        session.run(pinned.add)
        with failpoints({point: Pause()}) as points:
            restoring = pool.submit(saver.restore, session, prefix)
            points.wait_until_reached(point)
            draining = pool.submit(cluster.drain, PS1)
            wait_until(lambda: cluster.servers[PS1].worker.moves._holds or draining.done())
            points.release(point)
            draining.result(PATIENCE_S)
            restoring.result(PATIENCE_S)
        assert session.run(pinned.v) == 0.0


def test_a_save_waits_for_a_drain(cluster: ChangingCluster, tmp_path: Path) -> None:
    pinned, point = Pinned(PS1), "worker.after_move"
    saver, prefix = saving(pinned), str(tmp_path / "saved")
    with (
        tf.Session(cluster.target(WORKER_0), graph=pinned.graph) as session,
        ThreadPoolExecutor(2) as pool,
    ):
        session.run(pinned.init)
        for consistent in (False, True):
            task = (PS1, PS0)[consistent]
            with failpoints({point: Pause()}) as points:
                draining = pool.submit(cluster.drain, task, (PS0, WORKER_1)[consistent])
                points.wait_until_reached(point)
                arguments = {"write_meta_graph": False}
                saved = pool.submit(saver.save, session, prefix, **arguments)
                assert not saved.done()
                points.release(point)
                draining.result(PATIENCE_S)
                saved.result(PATIENCE_S)


def test_saves_and_restores_find_what_has_left(cluster: ChangingCluster, tmp_path: Path) -> None:
    pinned, late = Pinned(PS1), Pinned(PS1)
    saver, prefix = saving(pinned), str(tmp_path / "saved")
    late_saver = saving(late)
    with tf.Session(cluster.target(WORKER_0), graph=pinned.graph) as session:
        session.run(pinned.init)
        session.run(pinned.add)
        cluster.drain(PS1)
        saver.save(session, prefix, write_meta_graph=False)
        session.run(pinned.add)
        with tf.Session(cluster.target(WORKER_1), graph=late.graph) as other:
            late_saver.restore(other, prefix)
            assert other.run(late.v) == 1.0
        assert session.run(pinned.v) == 1.0


def move(cluster: ChangingCluster, source: str, target: str) -> None:
    """Moves the variable of `Pinned`."""
    device, deadline = "/device:CPU:0", Deadline(PATIENCE_S)
    client = connect(Target.parse(cluster.target(WORKER_0)), PATIENCE_S, deadline)
    try:
        states = [StateId(source + device, "variable", "", "v")]
        client.call(ClusterState.move, states, target + device, 5.0, 5.0, deadline)
    finally:
        client.close()


def test_what_was_moved_from_a_task_that_leaves_is_found_by_new_sessions(
    cluster: ChangingCluster,
) -> None:
    pinned, late = Pinned(PS1), Pinned(PS1)
    with tf.Session(cluster.target(WORKER_0), graph=pinned.graph) as session:
        session.run(pinned.init)
        session.run(pinned.add)
        joined = cluster.join("ps")
        move(cluster, PS1, PS0)
        assert session.run(pinned.v) == 1.0
        assert device_of(session, pinned.add).startswith(PS0)
        cluster.drain(PS1, str(joined._task))
        assert session.run(pinned.add) == 2.0
        with tf.Session(cluster.target(WORKER_1), graph=late.graph) as other:
            assert other.run(late.add) == 3.0


def test_what_exceeds_a_quota_of_the_successor_stays_where_it_is(cluster: ChangingCluster) -> None:
    pinned, usage = Pinned(PS1), cluster.servers[PS0].worker.containers.usage
    with tf.Session(cluster.target(WORKER_0), graph=pinned.graph) as session:
        session.run(pinned.init)
        session.run(pinned.put)
        former, usage.quotas = usage.quotas, Quotas(task=4)  # the variable fits, the element not
        with pytest.raises(tf.errors.ResourceExhaustedError):
            cluster.drain(PS1)
        assert not usage.accounts()
        assert session.run(pinned.add) == 1.0
        usage.quotas = former
        cluster.drain(PS1)
        assert usage.accounts() == {Account(""): 8}
        assert session.run([pinned.add, pinned.take]) == [2.0, 7]


def test_a_container_that_is_reset_on_the_successor_first_takes_nothing_else_along(
    cluster: ChangingCluster,
) -> None:
    kept, reset = Pinned(PS1), tf.Graph()
    with reset.as_default(), tf.device(PS1), tf.container("reset"):
        w = tf.Variable(1.0, name="w")
        fill, is_there = w.initializer, tf.is_variable_initialized(w)
    heir, point = cluster.servers[PS0].worker, "worker.after_move"
    with (
        tf.Session(cluster.target(WORKER_0), graph=kept.graph) as session,
        tf.Session(cluster.target(WORKER_1), graph=reset) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        session.run(kept.init)
        other.run(fill)
        with failpoints({point: Pause()}) as points:
            draining = pool.submit(cluster.drain, PS1)
            points.wait_until_reached(point)  # the source has ended its hold, and no other task
            SERVERS.run_coroutine(heir.reset(["reset"]))
            points.release(point)
            draining.result(PATIENCE_S)
        assert session.run(kept.add) == 1.0
        assert not other.run(is_there)


def test_nothing_moves_to_a_task_that_is_about_to_leave(
    cluster: ChangingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = TaskMembers._change

    async def lost(*_: object, **__: object) -> None:
        raise tf.errors.UnavailableError("the test lost the call")

    pinned = Pinned(PS1)
    with tf.Session(cluster.target(WORKER_0), graph=pinned.graph) as session:
        session.run(pinned.init)
        monkeypatch.setattr(TaskMembers, "_change", lost)
        with pytest.raises(tf.errors.UnavailableError, match="the test lost the call"):
            cluster.drain(PS1)
        monkeypatch.setattr(TaskMembers, "_change", remove)
        with pytest.raises(tf.errors.AbortedError, match="everything on /job:ps/task:1 is now on"):
            cluster.drain(PS0, PS1)
        with pytest.raises(tf.errors.AbortedError, match="everything on /job:ps/task:1 is now on"):
            move(cluster, PS0, PS1)
        assert session.run(pinned.add) == 1.0
        cluster.drain(PS1)
        assert session.run(pinned.add) == 2.0


def test_a_leader_that_could_not_hand_over_tells_the_next_one_when_it_comes_back(
    cluster: ChangingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell = TaskMembers._tell

    async def lost(*_: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(TaskMembers, "_tell", lost)
    with pytest.raises(
        tf.errors.UnavailableError, match="does not answer; it is sent the list again"
    ):
        cluster.drain(PS0)
    leader, following = cluster.servers[PS0], cluster.servers[PS1]
    leader.stop()
    monkeypatch.setattr(TaskMembers, "_tell", tell)
    assert not following.worker.members.is_leader
    leader.start()
    wait_until(lambda: following.worker.members.is_leader)
    wait_until(lambda: cluster.servers[WORKER_0].worker.members.members.leader == PS1)
    assert cluster.drain(PS0).leader == PS1

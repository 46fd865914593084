"""What a checkpoint contains of steps that run while it is saved, and what saves wait for."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jflow as tf
from jflow.client.runtime.saving import SaveReport
from jflow.launch.testing.backends import BackendUnderTest
from jflow.testing import Pause, failpoints, start_servers, wait_until
from jflow.training.checkpoints.saver import states_to_save

PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"


@pytest.fixture(scope="module")
def servers() -> Iterator[list[tf.train.Server]]:
    """A parameter server and a worker in this process."""
    with ExitStack() as stack:
        yield start_servers(stack.enter_context, {"ps": 1, "worker": 1})


@pytest.fixture
def target(servers: list[tf.train.Server]) -> str:
    tf.Session.reset(servers[1].target)
    return servers[1].target


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def got(future: Future[Any]) -> Any:
    wait_until(future.done, "the result of a thread")
    return future.result()


@contextmanager
def repeated(act: Callable[[], object]) -> Iterator[None]:
    """A block in which a thread does something again and again, at least once."""
    is_over, n_done = threading.Event(), [0]

    def run() -> None:
        while not is_over.is_set():
            act()
            n_done[0] += 1

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(run)
        try:
            wait_until(lambda: n_done[0] > 0 or running.done(), "the first time")
            yield
        finally:
            is_over.set()
            running.result()


def saved(session: tf.Session, path: Path, variables: Any, **options: Any) -> SaveReport:
    return session.save_state(str(path), states_to_save(variables), **options)


def value(path: Path, name: str) -> Any:
    return tf.train.load_variable(str(path), name)


def on_two_tasks(backend: BackendUnderTest) -> tuple[list[tf.Variable], tf.Operation]:
    """Four counters on the devices of a backend, and a step that counts all of them."""
    variables = []
    for i in range(4):
        with tf.device(backend.devices[-(i % 2)]):
            variables.append(tf.Variable(np.int32(0), name=f"v{i}"))
    counts: list[Any] = []
    for variable in variables:
        # One after the other, so that they are not written by one program.
        with tf.control_dependencies([count.op for count in counts[-1:]]):
            counts.append(variable.assign_add(1))
    return variables, tf.group(*counts)


def test_steps_of_the_session_are_in_a_checkpoint_whole_or_not_at_all(
    backend: BackendUnderTest, tmp_path: Path
) -> None:
    variables, train = on_two_tasks(backend)
    with backend.session() as session:
        session.run(tf.global_variables_initializer())
        with repeated(lambda: session.run(train)), repeated(lambda: session.run(train)):
            for number in range(10):
                saved(session, tmp_path / f"model-{number}", variables)
        last = session.run(variables[0])
    counts = []
    for number in range(10):
        found = {int(value(tmp_path / f"model-{number}", v.op.name)) for v in variables}
        assert len(found) == 1, f"save {number} has a part of a step: {found}"
        counts += found
    assert counts == sorted(counts)
    assert counts[-1] <= last


def test_a_save_waits_for_a_step_of_the_session_that_has_done_a_part(
    servers: list[tf.train.Server], target: str, threads: ThreadPoolExecutor, tmp_path: Path
) -> None:
    with tf.device(PS):
        # Too large to come with the reply of the plan that computes it.
        first = tf.Variable(np.zeros(1 << 16, np.int32), name="first")
        done = first.assign_add(np.ones(1 << 16, np.int32))
    with tf.device(WORKER):
        second = tf.Variable(np.int32(0), name="second")
        train = second.assign_add(done[0])
    paused = servers[1].worker.moves.steps.directory._pauses
    with tf.Session(target) as session:
        session.run(tf.global_variables_initializer())
        with failpoints({"worker.before_deliver": Pause()}) as points:
            step = threads.submit(session.run, train)
            points.wait_until_reached("worker.before_deliver")
            saving = threads.submit(saved, session, tmp_path / "model", [first, second])
            wait_until(lambda: bool(paused) or saving.done(), "the save")
            points.release("worker.before_deliver")
            got(saving)
            got(step)
    model = tmp_path / "model"
    assert (value(model, "first") == 1).all()
    assert value(model, "second") == 1


def test_a_consistent_save_has_steps_of_all_sessions_whole_or_not_at_all(
    shared_backend: BackendUnderTest, tmp_path: Path
) -> None:
    variables, train = on_two_tasks(shared_backend)
    with shared_backend.session() as session, shared_backend.session(1) as other:
        session.run(tf.global_variables_initializer())
        with repeated(lambda: session.run(train)), repeated(lambda: other.run(train)):
            for number in range(5):
                path = tmp_path / f"model-{number}"
                report = saved(session, path, variables, is_consistent=True)
                assert report.held_s > 0
    for number in range(5):
        found = {int(value(tmp_path / f"model-{number}", v.op.name)) for v in variables}
        assert len(found) == 1, f"save {number} has a part of a step: {found}"


def test_what_a_task_does_in_a_step_of_another_session_is_whole(
    shared_backend: BackendUnderTest, tmp_path: Path
) -> None:
    variables, train = on_two_tasks(shared_backend)
    with shared_backend.session() as session, shared_backend.session(1) as other:
        session.run(tf.global_variables_initializer())
        with repeated(lambda: other.run(train)):
            for number in range(10):
                saved(session, tmp_path / f"model-{number}", variables)
    for number in range(10):
        found = [int(value(tmp_path / f"model-{number}", v.op.name)) for v in variables]
        assert found[0] == found[2], number
        assert found[1] == found[3], number


def test_steps_go_on_while_a_checkpoint_is_written(
    target: str, threads: ThreadPoolExecutor, tmp_path: Path
) -> None:
    with tf.device(PS):
        v = tf.Variable(np.zeros(1000, np.float32), name="v")
    add = v.assign_add(np.ones(1000, np.float32))
    with tf.Session(target) as session:
        session.run(v.initializer)
        session.run(add)
        with failpoints({"checkpoint.before_shard": Pause()}) as points:
            saving = threads.submit(saved, session, tmp_path / "model", [v])
            points.wait_until_reached("checkpoint.before_shard")
            for expected in (2, 3, 4):
                assert session.run(add)[0] == expected
            points.release("checkpoint.before_shard")
            got(saving)
    assert value(tmp_path / "model", "v")[0] == 1, "the checkpoint has the moment of the save"


def test_a_step_that_waits_for_a_queue_holds_up_no_save(
    backend: BackendUnderTest, threads: ThreadPoolExecutor, tmp_path: Path
) -> None:
    queue = tf.FIFOQueue(10, tf.int32, ((),))
    with tf.device(backend.devices[-1]):
        v, w = (tf.Variable(np.int32(0), name=name) for name in "vw")
        taken = queue.dequeue()
        first = v.assign_add(taken)
        with tf.control_dependencies([first.op]):
            train = tf.group(w.assign_add(taken), first)
    put = queue.enqueue(5)
    with backend.session() as session:
        session.run(tf.global_variables_initializer())
        session.run([put, train])
        step = threads.submit(session.run, train)
        saved(session, tmp_path / "model", [v, w])
        assert not step.done()
        assert [int(value(tmp_path / "model", name)) for name in "vw"] == [5, 5]
        session.run(put)
        got(step)


def test_a_save_that_waits_for_a_step_ends_with_its_deadline(
    backend: BackendUnderTest, threads: ThreadPoolExecutor, tmp_path: Path
) -> None:
    queue = tf.FIFOQueue(10, tf.int32, ((),))
    with tf.device(backend.devices[-1]):
        v, w = (tf.Variable(np.int32(0), name=name) for name in "vw")
        first = v.assign_add(1)
        with tf.control_dependencies([first.op]):
            taken = queue.dequeue()
        train = tf.group(w.assign_add(taken), first)
    put = queue.enqueue(5)
    hasty = tf.ConfigProto(operation_timeout_in_ms=800)
    with backend.session() as session:
        session.run(tf.global_variables_initializer())
        session.run([put, train])
        step = threads.submit(session.run, train)
        wait_until(lambda: session.run(v) == 2, "the first write of the step")
        states = states_to_save([v, w])
        session._settings._timeout = hasty.operation_timeout_in_ms / 1000
        with pytest.raises(tf.errors.DeadlineExceededError, match=r"did not end|timeout"):
            session.save_state(str(tmp_path / "model"), states)
        assert not [*tmp_path.iterdir()]
        session._settings._timeout = None
        session.run(put)
        got(step)
        session.save_state(str(tmp_path / "model"), states)
        assert [int(value(tmp_path / "model", name)) for name in "vw"] == [2, 10]


def test_a_checkpoint_is_found_where_state_has_moved_to(target: str, tmp_path: Path) -> None:
    from tests.state.moves.placing import all_on  # noqa: PLC0415

    v = tf.Variable(np.float32(3.0), name="v")
    add = v.assign_add(1.0)
    with tf.Session(target) as session, tf.Session(target) as other:
        session.run(v.initializer)
        assert session.run(add) == 4.0
        assert other.run(add) == 5.0
        assert session.replace(all_on("worker"), min_gain=None).moved
        saved(other, tmp_path / "model", [v])
        session.run(add)
        other.restore_state(str(tmp_path / "model"), states_to_save([v]))
        assert session.run(v) == 5.0
    assert [*tmp_path.glob("*worker-0.safetensors")]


def test_a_task_without_rights_refuses_and_one_with_a_root_allows(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    v = tf.Variable(1.0, name="v")
    saver = tf.train.Saver()
    server = tf.train.Server({"local": ["127.0.0.1:0"]}, checkpoint_roots=[inside])
    with server, tf.Session(server.target) as session:
        session.run(v.initializer)
        path = saver.save(session, inside / "model")
        for wrong in (outside, inside / "link", inside / ".." / "outside"):
            with pytest.raises(tf.errors.PermissionDeniedError, match="--checkpoint-root"):
                saver.save(session, wrong / "model")
            with pytest.raises(tf.errors.PermissionDeniedError, match="--checkpoint-root"):
                saver.restore(session, wrong / "model")
        saver.restore(session, path)
    assert not [*outside.iterdir()]


def test_a_full_disk_fails_the_save_and_training_goes_on(
    backend: BackendUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if backend.name == "processes":
        pytest.skip("the disk is full for this process only")
    with tf.device(backend.devices[-1]):
        v = tf.Variable(np.zeros(10_000, np.float32), name="v")
    add = v.assign_add(np.ones(10_000, np.float32))
    write = os.write

    def full(descriptor: int, data: Any) -> int:
        if len(data) > 10_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data)

    path = tmp_path / "model"
    with backend.session() as session:
        session.run(v.initializer)
        saved(session, path, [v])
        session.run(add)
        before = sorted(tmp_path.iterdir())
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(tf.errors.ResourceExhaustedError, match=r"model.*after \d+ of"):
                saved(session, path, [v])
        assert sorted(tmp_path.iterdir()) == before, "the old one is kept, and nothing of the new"
        assert value(path, "v")[0] == 0
        assert session.run(add)[0] == 2
        saved(session, path, [v])
        assert value(path, "v")[0] == 2

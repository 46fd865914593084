"""What tasks say to their watchers: what they hold, what they do, and what that waits for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

import jflow as tf
from jflow import errors
from jflow.base.cluster import Task
from jflow.cli.status import doing_text
from jflow.cli.watcher import Seen, Watcher
from jflow.state.watch import KINDS, MAX_ITEMS, MAX_NAME, StatusRequest, TaskState
from jflow.testing import PATIENCE_S, BackendUnderTest, wait_until


@pytest.fixture
def watcher(shared_backend: BackendUnderTest) -> Iterator[Watcher]:
    with Watcher(shared_backend.targets, PATIENCE_S) as watcher:
        yield watcher


def of_task(watcher: Watcher, task: str, *kinds: str) -> Seen:
    (seen,) = watcher.inspect(kinds, [Task.parse(task)])
    assert seen.is_up, seen.report
    return seen


@contextmanager
def parked(session: tf.Session, fetch: tf.Tensor, unblock: Callable[[], object]) -> Iterator[None]:
    """A step that waits during the block."""
    with ThreadPoolExecutor(1) as threads:
        step = threads.submit(session.run, fetch)
        try:
            yield
        finally:
            unblock()
            step.result(PATIENCE_S)


def test_every_task_says_what_it_is(watcher: Watcher, shared_backend: BackendUnderTest) -> None:
    seen = watcher.inspect(["devices"])
    assert [str(one.report.task) for one in seen] == ["/job:worker/task:0", "/job:ps/task:0"]
    for one in seen:
        assert one.report.state is TaskState.UP
        assert one.status is not None
        assert one.status.address == one.report.address
        assert (one.status.task, one.status.version) == (str(one.report.task), tf.__version__)
        assert one.status.incarnation > 0
        assert min(one.status.pid, one.status.memory_bytes, one.status.cpu_s) > 0
        assert [device.type for device in one.status.devices[:1]] == ["CPU"]
        assert all(device.name.startswith(one.status.task) for device in one.status.devices)


def test_variables_are_listed_by_container_and_name(
    watcher: Watcher, shared_backend: BackendUnderTest
) -> None:
    with tf.device("/job:ps/task:0"):
        x = tf.Variable(tf.numpy.zeros((3, 4), "float32"), name="x")
        with tf.container("other"):
            y = tf.Variable(1, dtype="int8", name="y")
    with shared_backend.session() as session:
        session.run([x.initializer, y.initializer])
        status = of_task(watcher, "/job:ps/task:0", "variables", "containers").status
    assert status is not None
    try:
        found = [(v.container, v.name, v.dtype, v.shape, v.n_bytes) for v in status.variables]
        assert found == [("", "x", "float32", (3, 4), 48), ("other", "y", "int8", (), 1)]
        assert status.totals == {"variables": 2, "containers": 2}
        sizes = {c.name: (c.n_variables, c.n_bytes, c.n_resources) for c in status.containers}
        assert sizes == {"": (1, 48, 0), "other": (1, 1, 0)}
        assert of_task(watcher, "/job:worker/task:0", "variables").items("variables") == ()
    finally:
        shared_backend.reset("other")


def test_a_step_that_waits_for_a_queue_says_so(
    watcher: Watcher, shared_backend: BackendUnderTest
) -> None:
    with tf.device("/job:ps/task:0"):
        queue = tf.FIFOQueue(3, ["float32"], [()], shared_name="jobs")
        put, get = queue.enqueue(1.0), queue.dequeue()

    def steps() -> list[str]:
        return [
            w
            for s in of_task(watcher, "/job:ps/task:0", "steps").items("steps")
            for w in s.waiting_for
        ]

    with shared_backend.session() as session, parked(session, get, lambda: session.run(put)):
        wait_until(lambda: any("'jobs'" in wait for wait in steps()), "the step to wait")
        (wait,) = steps()
        assert wait.startswith("to dequeue")
        seen = of_task(watcher, "/job:ps/task:0", "queues", "steps")
        (found,) = seen.items("queues")
        assert (found.name, found.kind, found.capacity, found.size) == ("jobs", "FIFOQueue", 3, 0)
        assert (found.n_enqueues, found.n_dequeues, found.is_closed) == (0, 1, False)
        (step,) = seen.items("steps")
        assert re.fullmatch("[0-9a-f]+", step.step)
        assert step.age_s > 0
        assert all(device.startswith("/job:ps/task:0") for device in step.devices)
    wait_until(lambda: not steps(), "the step to end")


def test_a_step_that_waits_for_another_task_names_it(
    watcher: Watcher, shared_backend: BackendUnderTest
) -> None:
    with tf.device("/job:ps/task:0"):
        queue = tf.FIFOQueue(3, ["float32"], [()], shared_name="values")
        put, value = queue.enqueue(1.0), queue.dequeue()
    with tf.device("/job:worker/task:0"):
        total = value + 1.0

    def waiting() -> list[str]:
        seen = of_task(watcher, "/job:worker/task:0", "steps")
        return [wait for step in seen.items("steps") for wait in step.waiting_for]

    with shared_backend.session() as session, parked(session, total, lambda: session.run(put)):
        wait_until(lambda: waiting() == ["for a value from /job:ps/task:0"], "the step to wait")


def test_a_program_that_its_caller_gave_up_is_listed_until_it_ends(
    watcher: Watcher, shared_backend: BackendUnderTest
) -> None:
    with tf.device("/job:ps/task:0"):
        rounds = tf.placeholder(tf.int32, ())
        long = tf.lax.fori_loop(0, rounds, lambda _, y: y * 1.0000001 + 0.5, 1.0)

    def found(kind: str) -> tuple[object, ...]:
        return of_task(watcher, "/job:ps/task:0", kind).items(kind)

    with shared_backend.session() as session:
        session.run(long, {rounds: 1})
        with pytest.raises(errors.DeadlineExceededError):
            session.run(long, {rounds: 2**28}, tf.RunOptions(timeout_in_ms=300))
    wait_until(lambda: any(step.abandoned_s is not None for step in found("steps")))
    (step,), (wait,) = found("steps"), found("pending")
    assert step.abandoned_s < step.age_s
    assert (step.master, step.waiting_for) == ("/job:worker/task:0", ())
    assert (wait.step, wait.cause) == (step.step, "")
    assert wait.abandoned_s >= step.abandoned_s
    text = doing_text(step)
    assert re.fullmatch(r"computes, abandoned .* ago; of session \d+ of /job:worker/task:0", text)
    wait_until(lambda: not found("steps"), "the program to end")


def test_sessions_are_listed_but_for_those_that_watch(
    watcher: Watcher, shared_backend: BackendUnderTest
) -> None:
    def sessions() -> list[int]:
        return [
            s.n_steps for s in of_task(watcher, "/job:worker/task:0", "sessions").items("sessions")
        ]

    before = len(sessions())
    x = tf.constant(1.0) + 1.0
    with shared_backend.session() as session:
        session.run(x)
        session.run(x * 2)
        assert len(sessions()) == before + 1
        assert sessions()[-1] == 2
    wait_until(lambda: len(sessions()) == before, "the session to end")


def test_threads_are_where_they_are(watcher: Watcher) -> None:
    threads = of_task(watcher, "/job:ps/task:0", "threads").items("threads")
    frames = [frame for thread in threads for frame in thread.frames]
    assert "jflow servers" in {thread.name for thread in threads}
    assert any("list_threads" in frame for frame in frames), "the one that answers"


def test_more_items_than_a_page_has_are_all_listed(
    watcher: Watcher, shared_backend: BackendUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tf.device("/job:ps/task:0"):
        variables = [tf.Variable(float(i), name=f"v{i}") for i in range(7)]
    with shared_backend.session() as session:
        session.run([v.initializer for v in variables])
    monkeypatch.setattr("jflow.cli.watcher.PAGE", 3)
    seen = of_task(watcher, "/job:ps/task:0", "variables", "devices")
    assert [v.name for v in seen.items("variables")] == [f"v{i}" for i in range(7)]
    assert len({d.name for d in seen.items("devices")}) == len(seen.items("devices"))


def test_variables_that_come_and_go_between_pages_are_listed_as_they_are(
    watcher: Watcher, shared_backend: BackendUnderTest
) -> None:
    def listed() -> list[str]:
        return [v.name for v in of_task(watcher, "/job:ps/task:0", "variables").items("variables")]

    with tf.device("/job:ps/task:0"):
        b, c = tf.Variable(1.0, name="b"), tf.Variable(1.0, name="c")
        with tf.container("other"):
            a = tf.Variable(1.0, name="a")
    with shared_backend.session() as session:
        session.run(c.initializer)
        assert listed() == ["c"]
        session.run([b.initializer, a.initializer])
        assert listed() == ["b", "c", "a"], "by container first"
    shared_backend.reset("other")
    assert listed() == ["b", "c"]


def test_a_long_name_is_shortened_and_the_others_are_listed(
    watcher: Watcher, shared_backend: BackendUnderTest
) -> None:
    with tf.device("/job:ps/task:0"):
        whole = tf.Variable(1.0, name="a" * MAX_NAME)
        long = tf.Variable(1.0, name="b" * 70_000)
    with shared_backend.session() as session:
        session.run([whole.initializer, long.initializer])
        names = [v.name for v in of_task(watcher, "/job:ps/task:0", "variables").items("variables")]
    assert names == ["a" * MAX_NAME, "b" * MAX_NAME + f"… ({70_000 - MAX_NAME} more characters)"]


def test_what_cannot_be_requested_is_refused(watcher: Watcher) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"cannot list 'varaibles'; expected"):
        StatusRequest(("varaibles",))
    with pytest.raises(errors.InvalidArgumentError, match=r"'queues' more than once"):
        StatusRequest(("queues", "steps", "queues"))
    with pytest.raises(errors.InvalidArgumentError, match=r"<= 500 .*limit"):
        StatusRequest(limit=MAX_ITEMS + 1).to_bytes()
    with pytest.raises(errors.InvalidArgumentError, match=r"has no /job:ps/task:9; it has /job:ps"):
        watcher.inspect(KINDS, [Task("ps", 9)])


def test_a_task_that_is_not_there_is_marked_and_the_others_are_listed() -> None:
    with tf.train.Server({"worker": {0: "127.0.0.1:0"}}, "worker", 0) as server:
        worker = server.cluster_spec.task_address("worker", 0)
        server.connect({"worker": [worker], "ps": ["127.0.0.1:1"]})
        with Watcher([server.target], PATIENCE_S) as watcher:
            own, other = watcher.inspect(["devices"])
    assert own.is_up
    assert other.report.state is TaskState.DOWN
    assert "127.0.0.1:1" in other.report.reason

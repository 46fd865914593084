"""Queue runners, on operations that are functions."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

import jflow as tf
from jflow.testing import PATIENCE_S as WAIT_S


@dataclass(eq=False)
class Op:
    """A tensor that the sessions of these tests run."""

    name: str
    work: Callable[[], object]


class FunctionSession:
    """A session whose operations are functions."""

    def run(self, fetches: Op, feed_dict: Any = None) -> None:
        fetches.work()


@dataclass
class FakeQueue:
    """Records how it was closed."""

    name: str = "fake"
    closed: list[bool] = field(default_factory=list)
    open: threading.Event = field(default_factory=threading.Event)

    def close(self, cancel_pending_enqueues: bool = False) -> Op:
        def close() -> None:
            self.closed.append(cancel_pending_enqueues)
            self.open.set()

        return Op("close", close)


def runner(queue: FakeQueue, *work: Callable[[], object], **options: Any) -> Any:
    ops = [Op(f"op_{i}", fun) for i, fun in enumerate(work)]
    return tf.train.QueueRunner(queue, ops, **options)


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()


class Source:
    """Yields `n` elements, then fails."""

    def __init__(self, n: int, error: Exception | None = None) -> None:
        self.left = n
        self.given = 0
        self.error = error or tf.errors.OutOfRangeError("no more")

    def __call__(self) -> None:
        if self.left == 0:
            raise self.error
        self.left -= 1
        self.given += 1


def test_the_end_of_the_data_closes_the_queue() -> None:
    queue, source = FakeQueue(), Source(3)
    qr = runner(queue, source)
    threads = qr.create_threads(FunctionSession(), start=True)
    assert [thread.name for thread in threads] == ["QueueRunnerThread-fake-op_0"]
    join(threads)
    assert source.given == 3
    assert queue.closed == [False]
    assert qr.exceptions_raised == []
    assert qr.name == "fake"


def test_only_the_last_thread_closes() -> None:
    queue, gate = FakeQueue(), threading.Event()
    ended = threading.Event()

    def first() -> None:
        ended.set()
        raise tf.errors.OutOfRangeError("first")

    def second() -> None:
        gate.wait(WAIT_S)
        raise tf.errors.OutOfRangeError("second")

    qr = runner(queue, first, second)
    threads = qr.create_threads(FunctionSession(), start=True)
    assert ended.wait(WAIT_S)
    threads[0].join(WAIT_S)
    assert queue.closed == []
    gate.set()
    join(threads)
    assert queue.closed == [False]


def test_sessions_end_on_their_own() -> None:
    queue, gates = FakeQueue(), [threading.Event(), threading.Event()]

    class Gated(FunctionSession):
        def __init__(self, gate: threading.Event) -> None:
            self.gate = gate

        def run(self, fetches: Op, feed_dict: Any = None) -> None:
            self.gate.wait(WAIT_S)
            fetches.work()

    qr = runner(queue, Source(0))
    sessions = [Gated(gate) for gate in gates]
    threads = [qr.create_threads(session, start=True) for session in sessions]
    gates[0].set()
    join(threads[0])
    assert queue.closed == [False]
    assert qr.create_threads(sessions[1]) == []
    gates[1].set()
    join(threads[1])
    assert queue.closed == [False, False]


def test_other_errors_mean_the_end_if_one_says_so() -> None:
    queue = FakeQueue()
    ends = (tf.errors.OutOfRangeError, tf.errors.CancelledError)
    qr = runner(
        queue,
        Source(1, tf.errors.CancelledError("closed from elsewhere")),
        queue_closed_exception_types=ends,
    )
    coord = tf.train.Coordinator()
    threads = qr.create_threads(FunctionSession(), coord, start=True)
    join(threads[:1])
    assert queue.closed == [False]
    assert not coord.should_stop()
    coord.request_stop()
    coord.join()


def test_without_a_coordinator_an_error_is_kept_and_raised_in_the_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    queue, error = FakeQueue(), ValueError("operation is broken")
    qr = runner(queue, Source(1, error))
    join(qr.create_threads(FunctionSession(), start=True))
    assert qr.exceptions_raised == [error]
    assert [hook.exc_value for hook in raised] == [error]
    assert queue.closed == []
    qr.create_threads(FunctionSession())
    assert qr.exceptions_raised == []


def test_an_error_stops_the_coordinator_and_cancels() -> None:
    queue, coord = FakeQueue(), tf.train.Coordinator()
    qr = runner(queue, Source(1, ValueError("operation is broken")))
    threads = qr.create_threads(FunctionSession(), coord, start=True)
    assert [thread.name for thread in threads[1:]] == ["QueueRunnerThread-fake-close_on_stop"]
    with pytest.raises(ValueError, match="operation is broken"):
        coord.join()
    join(threads)
    assert queue.closed == [True]
    assert qr.exceptions_raised == []


def test_a_stop_cancels_what_waits_to_enqueue() -> None:
    queue, coord = FakeQueue(), tf.train.Coordinator()
    waiting = threading.Event()

    def full() -> None:
        waiting.set()
        assert queue.open.wait(WAIT_S)
        raise tf.errors.CancelledError("Enqueue operation was cancelled")

    qr = runner(queue, full)
    threads = qr.create_threads(FunctionSession(), coord, start=True)
    assert waiting.wait(WAIT_S)
    coord.request_stop()
    coord.join(stop_grace_period_secs=WAIT_S)
    join(threads)
    assert queue.closed == [True]


def test_a_stop_ends_a_thread_between_elements() -> None:
    queue, coord = FakeQueue(), tf.train.Coordinator()
    begun = threading.Event()
    threads = runner(queue, begun.set).create_threads(FunctionSession(), coord, start=True)
    assert begun.wait(WAIT_S)
    coord.request_stop()
    coord.join(stop_grace_period_secs=WAIT_S)
    join(threads)


@pytest.mark.parametrize(
    "error", [tf.errors.CancelledError("already closed"), RuntimeError("a closed Session")]
)
def test_what_is_closed_already_can_be_closed(error: Exception) -> None:
    def fail() -> None:
        raise error

    coord = tf.train.Coordinator()
    closing = Op("broken", fail)
    qr = runner(FakeQueue(), Source(0), close_op=closing, cancel_op=closing)
    threads = qr.create_threads(FunctionSession(), coord, start=True)
    join(threads[:1])
    coord.request_stop()
    coord.join()


def test_threads_that_run_are_not_made_twice() -> None:
    queue, gate, source = FakeQueue(), threading.Event(), Source(2)

    def work() -> None:
        gate.wait(WAIT_S)
        source()

    qr, session = runner(queue, work), FunctionSession()
    threads = qr.create_threads(session, start=True)
    assert qr.create_threads(session, start=True) == []
    gate.set()
    join(threads)
    assert source.given == 2
    source.left = 3
    again = qr.create_threads(session, start=True)
    assert len(again) == 1
    join(again)
    assert source.given == 5


def test_threads_are_started_and_daemons_if_one_says_so() -> None:
    qr = runner(FakeQueue(), Source(0))
    (thread,) = qr.create_threads(FunctionSession(), daemon=True)
    assert thread.daemon
    assert not thread.is_alive()
    thread.start()
    join([thread])


def test_what_cannot_work_is_refused() -> None:
    queue = FakeQueue()
    with pytest.raises(ValueError, match="at least one"):
        tf.train.QueueRunner(queue, [])
    with pytest.raises(ValueError, match="queue"):
        tf.train.QueueRunner(None, [Op("op", int)])  # type: ignore[arg-type, list-item]
    for kinds in [(), [tf.errors.OutOfRangeError], (ValueError,), (3,)]:
        with pytest.raises(TypeError, match="queue_closed_exception_types"):
            runner(queue, int, queue_closed_exception_types=kinds)


def counting_runner(name: str) -> tuple[tf.Variable, Any]:
    count = tf.Variable(0, name=name)
    close = tf.no_op(name=f"close_{name}")
    op = count.assign_add(1).op
    return count, tf.train.QueueRunner(FakeQueue(name), [op], close, close)


def test_all_queue_runners_of_a_graph_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    with tf.Graph().as_default():
        counts, runners = zip(*[counting_runner(name) for name in "ab"], strict=True)
        for qr in runners:
            tf.train.add_queue_runner(qr)
        tf.train.add_queue_runner(counting_runner("c")[1], "others")
        session = tf.Session()
    coord = tf.train.Coordinator()
    with session:
        session.run([count.initializer for count in counts])
        threads = tf.train.start_queue_runners(coord=coord)
        assert len(threads) == 4
        assert all(thread.daemon and thread.is_alive() for thread in threads)
        assert tf.train.start_queue_runners(session, coord) == []
        enough = threading.Event()
        tf.train.LooperThread.loop(
            coord, None, lambda: min(session.run(list(counts))) > 2 and enough.set()
        )
        assert enough.wait(WAIT_S)
        coord.request_stop()
        coord.join()


def test_queue_runners_need_not_be_started() -> None:
    with tf.Session() as session:
        tf.train.add_queue_runner(counting_runner("a")[1], "mine")
        (thread,) = tf.train.start_queue_runners(
            session, daemon=False, start=False, collection="mine"
        )
        assert not thread.is_alive()
        assert not thread.daemon


def test_a_graph_without_queue_runners_is_pointed_out(caplog: pytest.LogCaptureFixture) -> None:
    with tf.Session() as session, caplog.at_level(logging.WARNING, "jflow.training"):
        assert tf.train.start_queue_runners(session) == []
    assert "no queue runner" in caplog.text


def test_starting_needs_a_session() -> None:
    with pytest.raises(ValueError, match="no default session"):
        tf.train.start_queue_runners()
    with pytest.raises(TypeError, match="Session, got str"):
        tf.train.start_queue_runners("a session")  # type: ignore[arg-type]

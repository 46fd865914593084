"""What is told of a wait that takes long: what it is for, on which task, at which line."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial

import numpy as np
import pytest

import jflow as tf
from jflow.base.cluster import LOCAL_TASK, Task
from jflow.base.deadline import FOREVER, notices
from jflow.base.deadline.notices import Notices, WaitNotice, notice_s
from jflow.errors import CancelledError, InvalidArgumentError, UnavailableError
from jflow.state.moves import StateId, Use
from jflow.state.resources import Containers
from jflow.state.watch import TaskReport, TaskState, TaskStatus, WaitStatus
from jflow.task.execution.local_task import LocalTask
from jflow.task.master import pending as master_pending
from jflow.task.server.loop import SERVERS
from jflow.task.worker.device_pool import N_LONG
from jflow.testing import free_ports, start_servers, wait_until
from tests.notices import notices_after

STATE = StateId("/job:worker/task:0/device:CPU:0", "variable", "", "x")
TRACED = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)


@pytest.fixture
def soon() -> Iterator[None]:
    with notices_after(0.2):
        yield


def test_notices_come_after_ten_seconds_and_then_less_and_less_often() -> None:
    due: Notices[str] = Notices()
    times = [t for t in range(2000) if due.due({"wait": float(t)}, 10.0)]
    assert times == [10, 20, 40, 80, 160, 320, 640, 1240, 1840]
    assert due.due({}, 10.0) == []
    assert due.due({"wait": 12.0}, 10.0) == ["wait"], "another wait of that name"


def test_nothing_is_told_if_the_variable_is_zero_and_a_malformed_one_is_refused(
    monkeypatch: pytest.MonkeyPatch, soon: None
) -> None:
    assert notice_s() == 0.2
    monkeypatch.setenv(notices.VARIABLE, "0")
    notice_s.cache_clear()
    assert notice_s() == math.inf
    assert WaitNotice(str).pause(None) is None
    monkeypatch.setenv(notices.VARIABLE, "-1")
    notice_s.cache_clear()
    with pytest.raises(InvalidArgumentError, match="JFLOW_WAIT_NOTICE_S must be a number of sec"):
        notice_s()


@pytest.mark.parametrize("options", [None, TRACED], ids=["untraced", "traced"])
def test_a_local_step_that_waits_for_a_queue_tells_the_operation_its_line_and_the_queue(
    soon: None, caplog: pytest.LogCaptureFixture, options: tf.RunOptions | None
) -> None:
    queue = tf.FIFOQueue(4, ["float32"], [()], shared_name="jobs")
    element, fill = queue.dequeue(name="take"), queue.enqueue([1.0])
    with tf.Session() as session:
        run = partial(session.run, element, options=options, run_metadata=tf.RunMetadata())
        waiting = threading.Thread(target=run)
        waiting.start()
        try:
            wait_until(lambda: "FIFOQueue 'jobs'" in caplog.text, "a notice")
        finally:
            session.run(fill)
            waiting.join()
    record = next(one for one in caplog.records if one.name == "jflow.waits")
    assert record.levelname == "WARNING"
    text = record.getMessage()
    assert text.startswith("waiting for ")
    assert f"'take' (made at {__file__}:" in text
    assert "waits to dequeue an element from FIFOQueue 'jobs', which has 0 elements" in text


@pytest.mark.parametrize("options", [None, TRACED], ids=["untraced", "traced"])
def test_a_step_tells_the_values_of_other_tasks_that_it_waits_for(
    soon: None, caplog: pytest.LogCaptureFixture, options: tf.RunOptions | None
) -> None:
    with tf.device("/job:ps/task:0"):
        queue = tf.FIFOQueue(4, ["float32"], [()], shared_name="jobs")
        element, fill = queue.dequeue(name="take"), queue.enqueue([1.0])
    with tf.device("/job:worker/task:0"):
        doubled = element * 2.0
    (port,) = free_ports(1)
    with start_servers_of(port) as targets, tf.Session(targets[1]) as session:
        run = partial(session.run, doubled, options=options, run_metadata=tf.RunMetadata())
        waiting = threading.Thread(target=run)
        waiting.start()
        try:
            wait_until(lambda: "FIFOQueue 'jobs'" in caplog.text, "a notice")
        finally:
            session.run(fill)
            waiting.join()
        text = caplog.text
        assert "on /job:worker/task:0 for 'take:0' from /job:ps/task:0/device:CPU:0" in text
        assert "'take' (made at " in text
        assert f"(through the server at {targets[1].removeprefix('grpc://')})" in text


def test_a_call_that_waits_for_a_missing_worker_names_it_and_its_address(
    soon: None, caplog: pytest.LogCaptureFixture
) -> None:
    with tf.device("/job:worker/task:1"):
        x = tf.numpy.ones(3) * 2.0
    (port,) = free_ports(1)
    with start_servers_of(port) as targets, tf.Session(targets[1]) as session:

        def run() -> None:
            with pytest.raises((CancelledError, UnavailableError)):
                session.run(x)

        waiting = threading.Thread(target=run)
        waiting.start()
        try:
            wait_until(lambda: "jflow.waits" in caplog.text, "a notice")
        finally:
            session.close()
            waiting.join()
    told = [one.getMessage() for one in caplog.records if one.name == "jflow.waits"]
    assert f"waits for /job:worker/task:1 at 127.0.0.1:{port} to start" in told[0]


def test_a_local_step_tells_what_is_saved_or_moved_that_it_waits_for(
    soon: None, caplog: pytest.LogCaptureFixture
) -> None:
    task = LocalTask(Containers(LOCAL_TASK), {})
    gate = task._gate
    use = task.add(frozenset({STATE}), [frozenset({STATE})])
    target = "/job:ps/task:1/device:CPU:0"
    saved = (partial(gate.directory.pause, "it", [STATE]), gate.resume, "saved or restored")
    moved = (partial(gate.directory.hold, "it", [STATE], target), gate.release, "moved to /job:ps")
    for begin, end, what in (saved, moved):
        caplog.clear()
        begin()
        waiting = threading.Thread(target=entered, args=(task, use))
        waiting.start()
        try:
            wait_until(lambda: "jflow.waits" in caplog.text, "a notice")
        finally:
            with task._lock:
                end("it")
            waiting.join()
        assert f"now: a step waits for {STATE}, which is being {what}" in caplog.text


def entered(task: LocalTask, use: Use) -> None:
    """Begins a step and ends it."""
    task.enter(use, FOREVER)
    task.leave(use)


def test_a_step_on_a_cluster_tells_what_is_saved_that_it_waits_for(
    soon: None, caplog: pytest.LogCaptureFixture
) -> None:
    with tf.device("/job:worker/task:0"):
        x = tf.Variable(1.0, name="x")
    with ExitStack() as stack:
        (server,) = start_servers(stack.enter_context, {"worker": 1})
        session = stack.enter_context(tf.Session(server.target))
        session.run(x.initializer)
        gate = server.worker.moves.steps

        async def pause() -> None:
            gate.directory.pause("save", [STATE])

        async def resume() -> None:
            gate.resume("save")

        SERVERS.run_coroutine(pause())
        waiting = threading.Thread(target=session.run, args=(x.assign_add(1.0),))
        waiting.start()
        try:
            wait_until(lambda: "jflow.waits" in caplog.text, "a notice")
        finally:
            SERVERS.run_coroutine(resume())
            waiting.join()
        assert session.run(x) == 2.0
    assert "a step on /job:worker/task:0 waits for variable 'x'" in caplog.text
    assert "which is being saved or restored (through the server at" in caplog.text


def test_a_step_tells_of_a_device_that_takes_no_more_programs(
    soon: None, caplog: pytest.LogCaptureFixture
) -> None:
    # The number of its iterations is computed, so it never runs on the event loop.
    n = tf.lax.while_loop(lambda n: n < 5, lambda n: n + 1, tf.constant(0))
    with ExitStack() as stack:
        (server,) = start_servers(stack.enter_context, {"worker": 1})
        session = stack.enter_context(tf.Session(server.target))
        pool, end = server.worker.long_programs, threading.Event()
        device, *_ = pool._slots  # CPU:0

        async def fill() -> None:
            for _ in range(N_LONG):
                await pool.start(device, end.wait)

        SERVERS.run_coroutine(fill())
        with ThreadPoolExecutor(1) as threads:
            step = threads.submit(session.run, n)
            try:
                wait_until(lambda: "jflow.waits" in caplog.text, "a notice")
            finally:
                end.set()
            assert step.result() == 5
    what = "a step on /job:worker/task:0/device:CPU:0 waits for its device, which runs other"
    assert what in caplog.text


def test_a_call_that_waits_for_a_server_that_does_not_answer_names_its_address(
    soon: None, caplog: pytest.LogCaptureFixture
) -> None:
    config = tf.ConfigProto(connect_timeout_in_ms=1000)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        session = tf.Session(f"grpc://{address}", config=config)
        with session, pytest.raises(UnavailableError, match="no answer in 1 s"):
            session.list_devices()
    assert f"now: for the server at {address}, which does not answer" in caplog.text


@contextmanager
def start_servers_of(port: int) -> Iterator[list[str]]:
    """The targets of a parameter server and of worker 0; nothing is at the port of worker 1."""
    with ExitStack() as stack:
        servers = start_servers(stack.enter_context, {"ps": 1, "worker": 1})
        ps, worker = (server.target.removeprefix("grpc://") for server in servers)
        for server in servers:
            server.connect({"ps": [ps], "worker": [worker, f"127.0.0.1:{port}"]})
        yield [server.target for server in servers]


def test_a_step_that_computes_on_some_task_waits_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ps, worker = Task("ps", 0), Task("worker", 0)

    def report(task: Task, *found: WaitStatus) -> TaskReport:
        status = TaskStatus(str(task), "", 1, "", 0, 0.0, 0, 0.0, 0, 0, pending=found)
        return TaskReport(
            task, "h:1", TaskState.UP, packed=np.frombuffer(status.to_bytes(), np.uint8)
        )

    reports = [
        report(ps, WaitStatus("10", 7, 12.0, "to dequeue"), WaitStatus("11", 7, 12.0)),
        report(worker, WaitStatus("11", 3, 12.0, "for a value"), WaitStatus("fff0", 7, 1.0, "x")),
    ]
    found = master_pending.session_waits(
        reports, {1: [(ps, 7), (worker, 3)]}, [range(0x10, 1 << 40)]
    )
    assert [(one.handle, one.task, one.wait.step) for one in found.found] == [
        (1, "/job:ps/task:0", "10"),
        (0, "/job:worker/task:0", "fff0"),
    ]
    lost = TaskReport(worker, "h:2", TaskState.SILENT, "no answer within 1 s")
    found = master_pending.session_waits(
        [reports[0], lost], {1: [(ps, 7), (worker, 3)]}, [range(0x10, 1 << 40)]
    )
    assert found.found[0].wait.cause == (
        "for /job:worker/task:0 at h:2 (silent: no answer within 1 s)"
    )
    others = master_pending.session_waits(reports, {1: [(ps, 7)]}, [range(1 << 62, 1 << 63)])
    assert not others.found, "steps of other sessions"

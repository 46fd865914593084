"""What is lost when processes die, and what is not."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest

import jflow as tf
from jflow.testing import PATIENCE_S, FaultProxy, ProcessCluster, wait_until


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessCluster]:
    with ProcessCluster(ps=1, workers=2) as cluster:
        yield cluster


@pytest.fixture
def cluster(processes: ProcessCluster) -> Iterator[ProcessCluster]:
    """A cluster with empty containers, all of whose tasks serve; what a test ended is restarted."""
    yield processes
    for task in processes.tasks:
        if processes.exit_code(task.job, task.index) is not None:
            processes.restart(task.job, task.index)
    tf.Session.reset(processes.target("worker", 0))


def busy(pid: int) -> Callable[[], bool]:
    """Whether a process has computed for a while since now."""
    process = psutil.Process(pid)
    before = sum(process.cpu_times()[:2])
    return lambda: sum(process.cpu_times()[:2]) - before > 0.3


def endless(x: tf.Tensor) -> tf.Tensor:
    """A value that takes minutes to compute."""
    return tf.lax.fori_loop(0, 2**31 - 1, lambda _, y: y * 1.0000001 + 0.5, x)


def test_a_worker_that_dies_in_mid_step_is_named_and_the_session_goes_on(
    cluster: ProcessCluster,
) -> None:
    x = tf.Variable(1.0, name="x")
    with tf.device("/job:worker/task:1"):
        never = endless(x + 0.0)
    with tf.Session(cluster.target("worker", 0)) as session:
        session.run(x.initializer)
        errors: list[tf.errors.OpError] = []

        def work() -> None:
            with pytest.raises(tf.errors.UnavailableError) as caught:
                session.run(never)
            errors.append(caught.value)

        is_busy = busy(cluster.pid("worker", 1))
        step = threading.Thread(target=work)
        step.start()
        wait_until(is_busy)
        killed = time.monotonic()
        cluster.kill("worker", 1)
        step.join(PATIENCE_S)
        assert errors
        assert errors[0].task == "/job:worker/task:1"
        assert time.monotonic() - killed < 14, "before keepalive would find out, in 15 s"
        assert session.run(x + 1.0) == 2.0
        with pytest.raises(tf.errors.UnavailableError, match="/job:worker/task:1"):
            session.run(never)
        assert session.run(x) == 1.0


def test_a_worker_that_dies_while_no_step_runs_is_named_by_the_next_step_that_needs_it(
    cluster: ProcessCluster,
) -> None:
    x = tf.Variable(1.0, name="x")
    with tf.device("/job:worker/task:1"):
        y = tf.Variable(2.0, name="y")
    with tf.Session(cluster.target("worker", 0)) as session:
        session.run(tf.global_variables_initializer())
        assert session.run([x, y]) == [1.0, 2.0]
        cluster.kill("worker", 1)
        for needs in (y, [x, y]):
            with pytest.raises(tf.errors.UnavailableError) as caught:
                session.run(needs)
            assert caught.value.task == "/job:worker/task:1"
        assert session.run(x + 1.0) == 2.0
        cluster.restart("worker", 1)
        for _ in range(2):
            with pytest.raises(tf.errors.AbortedError, match=r"worker/task:1.*restarted"):
                session.run(y)
        assert session.run(x + 1.0) == 2.0
        with tf.Session(cluster.target("worker", 0)) as fresh:
            assert fresh.run(x) == 1.0
            with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized"):
                fresh.run(y)


def test_a_dead_parameter_server_is_named(cluster: ProcessCluster) -> None:
    x = tf.Variable(1.0, name="x")
    a = tf.constant(1.0) * 2
    with tf.Session(cluster.target("worker", 0)) as session:
        session.run(x.initializer)
        cluster.kill("ps", 0)
        with pytest.raises(tf.errors.UnavailableError, match="/job:ps/task:0"):
            session.run(x)
        assert session.run(a) == 2.0


def test_a_parameter_server_that_dies_while_feeds_come_is_named_before_they_are_there(
    cluster: ProcessCluster,
) -> None:
    with tf.device("/job:ps/task:0"):
        given = tf.placeholder(tf.float32, [None])
        step = given[0] * 2.0
    feed = np.zeros(16 << 20, np.float32)
    with (
        FaultProxy(cluster.address("worker", 0)) as proxy,
        ThreadPoolExecutor(1) as threads,
        tf.Session(proxy.target) as session,
    ):
        session.run(step, {given: feed[:10]})
        passed = proxy.to_server
        passed.delay(0.25)  # of what is read at a time, so that all of it takes seconds
        before = passed.n_bytes
        running = threads.submit(session.run, step, {given: feed})
        wait_until(lambda: passed.n_bytes > before + (1 << 20))
        passed.hold()
        assert passed.n_bytes - before < feed.nbytes
        cluster.kill("ps", 0)
        error = running.exception(PATIENCE_S)
        assert isinstance(error, tf.errors.UnavailableError)
        assert error.task == "/job:ps/task:0"
        proxy.heal()
        assert session.run(tf.constant(1.0) + 1) == 2, "the session goes on behind the feed"


def test_a_dead_master_is_unavailable_and_state_elsewhere_is_there(
    cluster: ProcessCluster,
) -> None:
    x = tf.Variable(1.0, name="x")
    with tf.Session(cluster.target("worker", 0)) as session:
        session.run(x.initializer)
        cluster.kill("worker", 0)
        with pytest.raises(tf.errors.UnavailableError, match=r"127\.0\.0\.1"):
            session.run(x)
        with tf.Session(cluster.target("worker", 1)) as other:
            assert other.run(x) == 1.0
        cluster.restart("worker", 0)
        for _ in range(2):
            with pytest.raises(tf.errors.AbortedError, match=r"restarted.*new session"):
                session.run(x)
    with tf.Session(cluster.target("worker", 0)) as session:
        assert session.run(x) == 1.0


def test_a_restarted_master_does_not_know_the_session() -> None:
    a = tf.constant(1.0) * 2
    first = tf.train.Server({"local": ["127.0.0.1:0"]})
    try:
        with tf.Session(first.target) as session:
            assert session.run(a) == 2.0
            first.stop()
            with pytest.raises(tf.errors.UnavailableError):
                session.run(a)
            with tf.train.Server(first.cluster_spec):
                for _ in range(2):
                    with pytest.raises(tf.errors.AbortedError, match=r"restarted.*new session"):
                        session.run(a)
                with tf.Session(first.target) as fresh:
                    assert fresh.run(a) == 2.0
    finally:
        first.stop()


def test_a_restarted_task_is_told_from_the_one_before() -> None:
    first = tf.train.Server({"ps": {0: "127.0.0.1:0"}}, "ps", 0)
    spec = {**first.cluster_spec.as_dict(), "worker": ["127.0.0.1:0"]}
    try:
        with tf.train.Server(spec, "worker", 0) as worker:
            with tf.device("/job:ps/task:0"):
                x = tf.Variable(1.0, name="x")
            with tf.Session(worker.target) as session:
                session.run(x.initializer)
                first.stop()
                with tf.train.Server(first.cluster_spec):
                    for _ in range(2):
                        with pytest.raises(tf.errors.AbortedError, match=r"ps/task:0.*restarted"):
                            session.run(x)
                    assert session.run(tf.constant(2.0) * 1) == 2.0
                    with tf.Session(worker.target) as fresh:
                        with pytest.raises(tf.errors.FailedPreconditionError):
                            fresh.run(x)
                        fresh.run(x.initializer)
                        assert fresh.run(x) == 1.0
    finally:
        first.stop()


def test_a_step_that_takes_too_long_is_given_up(cluster: ProcessCluster) -> None:
    with tf.device("/job:worker/task:1"):
        never = endless(tf.constant(1.0) + 0.0)
    a = tf.constant(1.0) * 2
    with tf.Session(cluster.target("worker", 0)) as session:
        assert session.run(a) == 2.0
        begun = time.monotonic()
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(never, options=tf.RunOptions(timeout_in_ms=1500))
        assert time.monotonic() - begun < PATIENCE_S
        assert session.run(a) == 2.0
    cluster.kill("worker", 1)  # it computes on


def test_closing_a_session_cancels_its_steps(cluster: ProcessCluster) -> None:
    with tf.device("/job:worker/task:1"):
        never = endless(tf.constant(1.0) + 0.0)
    session = tf.Session(cluster.target("worker", 0))
    errors: list[Exception] = []

    def work() -> None:
        with pytest.raises(tf.errors.CancelledError) as caught:
            session.run(never)
        errors.append(caught.value)

    is_busy = busy(cluster.pid("worker", 1))
    step = threading.Thread(target=work)
    step.start()
    wait_until(is_busy)
    session.close()
    step.join(PATIENCE_S)
    assert errors
    cluster.kill("worker", 1)  # it computes on


def test_the_processes_of_a_cluster_end_with_the_one_that_started_it() -> None:
    read, write = os.pipe()
    code = (
        "import jflow as tf, os, sys\n"
        "c = tf.LocalCluster(ps=1, workers=1)\n"
        "print(c.pid('ps'), c.pid('worker'), flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdin=read, stdout=subprocess.PIPE, text=True
    )
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2
    assert all(psutil.pid_exists(pid) for pid in pids)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    os.close(read)
    os.close(write)
    wait_until(lambda: not any(psutil.pid_exists(pid) for pid in pids))


def test_what_a_task_refuses_to_start_with_is_the_error_of_its_cluster(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JFLOW_TOKEN", "short")
    words = "JFLOW_TOKEN has a token of 5 characters"
    with pytest.raises(tf.errors.InvalidArgumentError, match=words) as raised:
        tf.LocalCluster(ps=1, workers=0)
    assert raised.value.task == "/job:ps/task:0"
    assert capfd.readouterr() == ("", "")


def test_leaving_the_block_leaves_no_process() -> None:
    with tf.LocalCluster(ps=1, workers=1) as cluster:
        pids = [cluster.pid("ps"), cluster.pid("worker")]
        x = tf.Variable(np.zeros(3), name="x")
        with tf.Session(cluster.target()) as session:
            session.run(x.initializer)
    assert not any(psutil.pid_exists(pid) for pid in pids)

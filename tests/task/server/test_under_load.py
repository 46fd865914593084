"""What happens to steps in progress when containers are reset, servers told to end, clocks set."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event

import numpy as np
import pytest

import jflow as tf
from jflow.launch.testing.processes import shared_zygote
from jflow.testing import PATIENCE_S, ProgramProcess, start_servers, wait_until
from tests.ports import free_ports

PS = "/job:ps/task:0"


@pytest.fixture
def servers() -> Iterator[list[tf.train.Server]]:
    """A parameter server and two workers in this process."""
    with ExitStack() as stack:
        yield start_servers(stack.enter_context, {"ps": 1, "worker": 2})


def count_until(session: tf.Session, add: tf.Tensor, is_over: Event) -> list[int]:
    """Runs a step again and again; returns what it was answered, until it fails if it does."""
    answers: list[int] = []
    try:
        while not is_over.is_set():
            answers.append(int(session.run(add)))
    except tf.errors.OpError:
        pass
    return answers


def counter(name: str) -> tuple[tf.Variable, tf.Tensor]:
    """A counter on the parameter server, and the step that counts."""
    with tf.device(PS):
        count = tf.Variable(np.int32(0), name=name)
        return count, count.assign_add(1)


@pytest.mark.parametrize("n", [20, pytest.param(2000, marks=pytest.mark.long)])
def test_resets_of_a_container_end_its_own_steps_and_change_nothing_of_another_one(
    servers: list[tf.train.Server], n: int
) -> None:
    _, resetting, other = servers
    kept, add = counter("kept")
    begun, begin = counter("begun")
    with tf.container("freed"), tf.device(PS):
        freed = tf.Variable(np.int32(7), name="freed")
        queue = tf.FIFOQueue(1, [tf.int32], [()], shared_name="q")
        with tf.control_dependencies([begin]):
            never = queue.dequeue()
    is_over = Event()
    with tf.Session(other.target) as session, ThreadPoolExecutor(2) as threads:
        session.run([kept.initializer, begun.initializer])
        counting = threads.submit(count_until, session, add, is_over)
        try:
            for number in range(1, n + 1):
                with tf.Session(resetting.target) as ending:
                    ending.run(freed.initializer)
                    waiting = threads.submit(ending.run, never)
                    wait_until(lambda number=number: session.run(begun) == number)
                    tf.Session.reset(resetting.target, ["freed"])
                    assert isinstance(waiting.exception(PATIENCE_S), tf.errors.CancelledError)
                    with pytest.raises(tf.errors.AbortedError):
                        ending.run(freed)
                with pytest.raises(tf.errors.FailedPreconditionError):
                    session.run(freed)
        finally:
            is_over.set()
        answers = counting.result(PATIENCE_S)
        assert answers == [*range(1, session.run(kept) + 1)]
        assert answers


def test_a_server_that_is_told_to_end_under_load_loses_no_step_that_it_has_answered() -> None:
    n_threads, port = 4, free_ports(1)[0]
    with ExitStack() as stack:
        (ps,) = start_servers(stack.enter_context, {"ps": 1})
        spec = {**ps.cluster_spec.as_dict(), "worker": [f"127.0.0.1:{port}"]}
        command = ["-m", "jflow", "server", "--cluster", json.dumps(spec), "--job", "worker"]
        worker = stack.enter_context(
            ProgramProcess([*command, "--index", "0"], zygote=shared_zygote())
        )
        assert "is ready" in worker.read_line()
        count, add = counter("count")
        config = tf.ConfigProto(connect_timeout_in_ms=200)
        with (
            tf.Session(f"grpc://127.0.0.1:{port}", config=config) as session,
            ThreadPoolExecutor(n_threads) as threads,
        ):
            session.run(count.initializer)
            counting: list[Future[list[int]]] = [
                threads.submit(count_until, session, add, Event()) for _ in range(n_threads)
            ]
            wait_until(lambda: session.run(count) > 100, "the load")
            worker.terminate()
            told = time.monotonic()
            answers = sorted(n for each in counting for n in each.result(PATIENCE_S))
            assert worker.wait(PATIENCE_S) == 0
            assert time.monotonic() - told < 10, "what the server promises"
        with tf.Session(ps.target) as session:
            value = session.run(count)
    assert len({*answers}) == len(answers) <= value <= len(answers) + n_threads


def test_nothing_expires_when_the_time_of_day_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JFLOW_LIVENESS_S", "1.5")
    time_of_day = time.time
    count, add = counter("count")
    with tf.device(PS):
        queue = tf.FIFOQueue(1, [tf.int32], [()], shared_name="q")
    put, get = queue.enqueue(5), queue.dequeue()
    with ExitStack() as stack:
        _, worker, _ = start_servers(stack.enter_context, {"ps": 1, "worker": 2})
        threads = stack.enter_context(ThreadPoolExecutor(1))
        connection = stack.enter_context(tf.Connection(worker.target))
        epoch = connection.claim("run")
        session = stack.enter_context(tf.Session(worker.target))
        session.run(count.initializer)
        limit = tf.RunOptions(timeout_in_ms=int(PATIENCE_S * 1000))
        waiting = threads.submit(session.run, get, options=limit)
        n = 0
        for offset in (3600.0, -3600.0):
            monkeypatch.setattr(time, "time", lambda offset=offset: time_of_day() + offset)
            end = time.monotonic() + 1.0  # in all, longer than a silent peer is waited for
            while time.monotonic() < end:
                n += 1
                assert session.run(add, options=limit) == n
            assert not waiting.done()
        assert connection.claim("run", epoch) == epoch
        session.run(put)
        assert waiting.result(PATIENCE_S) == 5

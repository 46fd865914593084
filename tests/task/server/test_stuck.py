"""Devices that are stuck with programs that do not end, and the servers that end because of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

import jflow as tf
from jflow.base.cluster import Task
from jflow.cli.listing import _COLUMNS
from jflow.cli.status import doing_text
from jflow.cli.watcher import Watcher
from jflow.errors import InvalidArgumentError, OpError, UnavailableError
from jflow.task.server.stuck import (
    STUCK_EXIT_CODE,
    abandoned_limit_s,
    restarts_when_stuck,
)
from jflow.testing import PATIENCE_S, ProcessCluster
from tests.ports import free_ports
from tests.runaway import ENDLESS, SOON, Runaway, until

LIMIT = "0.2"
BUSY = r"busy for [\d.]+ s with step [0-9a-f]+ of session \d+ of {}, abandoned [\d.]+ s ago"


def abandon(runaway: Runaway, session: tf.Session, what: Any = None) -> None:
    """Starts a program that does not end, and gives it up."""
    # A write cannot be taken back, so its master answers later than the deadline, or has ended.
    with pytest.raises(tf.errors.DeadlineExceededError if what is None else OpError):
        session.run(runaway.reads if what is None else what, {runaway.rounds: ENDLESS}, SOON)


@contextmanager
def waiting(session: tf.Session, what: Any) -> Iterator[list[OpError]]:
    """Runs something that waits, on a thread, and yields its error once it has ended."""
    errors: list[OpError] = []

    def run() -> None:
        try:
            session.run(what)
        except OpError as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield errors
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def refusal(session: tf.Session, what: Any) -> UnavailableError:
    """Runs something until it is refused."""
    found: list[UnavailableError] = []

    def is_refused() -> bool:
        try:
            session.run(what)
        except UnavailableError as error:
            found.append(error)
        return bool(found)

    until(is_refused)
    return found[0]


def test_a_stuck_device_takes_no_steps_and_the_others_go_on() -> None:
    environment = {"JFLOW_ABANDONED_LIMIT_S": LIMIT}
    with ProcessCluster(ps=1, workers=2, environment=environment) as cluster:
        runaway = Runaway("/job:worker/task:0", lambda: tf.Session(cluster.target("worker", 0)))
        strategy = tf.distribute.ParameterServerStrategy(cluster.cluster_spec)
        coordinator = tf.ClusterCoordinator(strategy)
        with strategy.scope():
            total = tf.Variable(jnp.zeros(()), name="total")

        @tf.function
        def count() -> None:
            total.assign_add(1.0)

        def run_closures() -> None:
            for _ in range(20):
                coordinator.schedule(count)
            coordinator.join()

        run_closures()
        watcher = Watcher([f"grpc://{cluster.address('ps')}"], PATIENCE_S)
        with runaway.session() as session, tf.Session(cluster.target("ps", 0)) as other, watcher:
            runaway.warm_up(session)
            abandon(runaway, session)
            error = refusal(session, runaway.y)
            busy = BUSY.format("/job:worker/task:0")
            said = rf"/job:worker/task:0/device:CPU:0 is stuck and takes no steps: .* {busy}"
            assert re.search(said, error.message), error.message
            assert error.task == "/job:worker/task:0"

            # Also for masters that are not the task itself.
            assert refusal(other, runaway.y).task == "/job:worker/task:0"

            (seen,) = watcher.inspect(("devices", "steps"), [Task("worker", 0)])
            (device,), (step,) = seen.items("devices"), seen.items("steps")
            assert (device.n_abandoned, device.is_stuck) == (1, True)
            assert 0 < device.abandoned_s < step.age_s
            assert list(_COLUMNS["devices"][1](device))[-1] == "no, it is stuck"
            text = r"computes, abandoned .* ago; of session \d+ of /job:worker/task:0"
            assert re.fullmatch(text, doing_text(step))

            # Each was applied once: a refused step has not begun on the parameter server.
            run_closures()
            assert total.numpy() == 40.0
        coordinator.close()


def test_a_server_that_is_stuck_saves_and_tells_those_that_wait_and_ends_with_its_own_code(
    tmp_path: Path,
) -> None:
    (port,) = free_ports(1)
    cluster = json.dumps({"local": [f"127.0.0.1:{port}"]})
    options = ("--abandoned-limit-s", LIMIT, "--restart-when-stuck", "--save-when-stuck", tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-m", "jflow", "server", "--cluster", cluster, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert "is ready" in process.stdout.readline()
        runaway = Runaway("", lambda: tf.Session(f"grpc://127.0.0.1:{port}"))
        get = tf.FIFOQueue(3, ["float32"], [()]).dequeue()
        busy = BUSY.format("/job:local/task:0")
        with runaway.session() as session:
            runaway.warm_up(session)
            with waiting(session, get) as errors:
                abandon(runaway, session, runaway.writes)
            (error,) = errors
            assert isinstance(error, UnavailableError)
            said = rf"/job:local/task:0 ends, to be started again, because .* is stuck: .* {busy}"
            assert re.match(said, error.message), error.message
            assert error.task == "/job:local/task:0"
            saved = tmp_path / "local-0"
            assert f"1 variables were saved as {str(saved)!r}" in error.message
        assert process.wait(PATIENCE_S) == STUCK_EXIT_CODE
        lines = process.stderr.read().splitlines()
        (told,) = [line for line in lines if "event=server_stuck" in line]
        assert f"exit_code={STUCK_EXIT_CODE}" in told
        assert re.search(busy, told)
        assert not [line for line in lines if "Traceback" in line]
        with tf.Session() as session:  # "x" is being written
            tf.train.Saver([runaway.y]).restore(session, saved)
            assert session.run(runaway.y) == 11.0 + 1.0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def test_a_stuck_worker_of_a_local_cluster_ends_and_its_closures_run_elsewhere() -> None:
    environment = {"JFLOW_ABANDONED_LIMIT_S": LIMIT, "JFLOW_RESTART_WHEN_STUCK": "1"}
    with ProcessCluster(ps=1, workers=2, environment=environment) as cluster:
        runaway = Runaway("/job:worker/task:0", lambda: tf.Session(cluster.target("worker", 0)))
        coordinator = tf.ClusterCoordinator(
            tf.distribute.ParameterServerStrategy(cluster.cluster_spec)
        )

        @tf.function
        def double(x: Any) -> Any:
            return x * 2.0

        session = runaway.session()
        runaway.warm_up(session)
        abandon(runaway, session)
        until(lambda: cluster.exit_code("worker", 0) is not None)
        assert cluster.exit_code("worker", 0) == STUCK_EXIT_CODE
        values = [coordinator.schedule(double, args=(float(i),)) for i in range(10)]
        assert [float(value.fetch()) for value in values] == [2.0 * i for i in range(10)]
        cluster.restart("worker", 0)
        with pytest.raises(tf.errors.OpError):
            session.run(runaway.y)
        with runaway.session() as again:
            again.run(tf.global_variables_initializer())
            assert again.run(runaway.y) == 10.0
        coordinator.close()


@pytest.mark.parametrize("text", ["0", "-1", "nan", "soon"])
def test_a_limit_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="JFLOW_ABANDONED_LIMIT_S must be a number of"):
        abandoned_limit_s({"JFLOW_ABANDONED_LIMIT_S": text})


def test_without_options_there_is_no_limit_and_no_server_ends() -> None:
    assert abandoned_limit_s({}) == float("inf")
    assert abandoned_limit_s({"JFLOW_ABANDONED_LIMIT_S": "2.5"}) == 2.5
    assert not restarts_when_stuck({})
    assert restarts_when_stuck({"JFLOW_RESTART_WHEN_STUCK": "1"})
    with pytest.raises(InvalidArgumentError, match="must be 0 or 1, got 'yes'"):
        restarts_when_stuck({"JFLOW_RESTART_WHEN_STUCK": "yes"})

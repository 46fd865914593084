"""Programs that run for minutes and cannot be interrupted, and what goes on beside them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import jflow as tf
from jflow.testing import PATIENCE_S, ProcessCluster
from tests.ports import free_ports
from tests.runaway import (
    Runaway,
    check_beside_a_reader,
    check_beside_a_writer,
    is_blocked,
    until,
)

PROGRAMS = Path(__file__).parent.parent.parent / "programs"


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProcessCluster]:
    with ProcessCluster(ps=1, workers=1) as cluster:
        yield cluster


@pytest.mark.parametrize("backend", ["local", "server"])
def test_everything_else_in_a_process_goes_on_beside_a_program_that_does_not_end(
    backend: str,
) -> None:
    done = subprocess.run(
        [sys.executable, PROGRAMS / "beside_runaways.py", backend],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1:] == ["all went on"], done.stderr


def test_everything_else_on_a_task_goes_on_beside_a_program_that_does_not_end(
    cluster: ProcessCluster,
) -> None:
    target = cluster.target("worker")
    runaway = Runaway("/job:ps/task:0", lambda: tf.Session(target))
    check_beside_a_reader(runaway)
    check_beside_a_writer(runaway)

    # A reset takes the variable from the program that writes it.
    tf.Session.reset(target)
    with tf.Session(target) as session:
        with pytest.raises(tf.errors.FailedPreconditionError):
            session.run(runaway.x)
        session.run(tf.global_variables_initializer())
        assert session.run(runaway.add_x) == 2.0


@pytest.mark.parametrize("number", [signal.SIGTERM])
def test_a_server_ends_when_it_is_told_to_beside_a_program_that_does_not_end(
    number: signal.Signals,
) -> None:
    (port,) = free_ports(1)
    cluster = json.dumps({"local": [f"127.0.0.1:{port}"]})
    process = subprocess.Popen(
        [sys.executable, "-m", "jflow", "server", "--cluster", cluster],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert "is ready" in process.stdout.readline()
        runaway = Runaway("", lambda: tf.Session(f"grpc://127.0.0.1:{port}"))
        runaway.initialize()
        with runaway.session() as session:
            runaway.warm_up(session)
            runaway.start(runaway.writes)
            until(lambda: is_blocked(session, runaway.x))
        told = time.monotonic()
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == 0
        assert time.monotonic() - told < 10  # what the server promises
        assert process.stdout.read() == "stopping\n"
        assert "Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()

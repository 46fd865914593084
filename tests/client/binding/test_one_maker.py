"""All variables of a model come from one program, whatever dies while it makes them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import jflow as tf
from jflow import errors
from jflow.client.binding import making
from jflow.client.binding.making import ModelVariables
from tests.clusters import in_process

N, SIZE = 12, 64
DEVICES = {f"w{i:02}": f"/job:ps/task:{i % 2}" for i in range(N)}


def model(value):
    """A model all of whose numbers are those of its program."""
    return {name: np.full(SIZE, value, np.float32) for name in DEVICES}


def bound(value, prefix="model", **options):
    return tf.bind(model(value), prefix, DEVICES, **options)


def maker_of(state):
    """The number of the program that has made a model, which must be one."""
    (value,) = {float(x) for array in state.value().values() for x in np.asarray(array)}
    return value


@pytest.fixture
def target():
    with in_process({"ps": 2, "worker": 1}) as backend:
        yield backend.target


@pytest.fixture
def in_small_steps(monkeypatch):
    """Each variable is written by a step of its own."""
    monkeypatch.setattr(making, "STEP_BYTES", SIZE * 4)


def test_of_programs_that_bind_at_once_one_makes_all_variables(target, in_small_steps):
    for attempt in range(4):
        start = threading.Barrier(3)

        def program(number, start=start, prefix=f"model_{attempt}"):
            with tf.connect(target):
                start.wait(60)
                return maker_of(bound(number, prefix))

        with ThreadPoolExecutor(3) as threads:
            makers = [*threads.map(program, (1.0, 2.0, 3.0))]
        assert len({*makers}) == 1
        assert makers[0] in (1.0, 2.0, 3.0)


def test_a_slow_maker_is_fenced_off_and_finds_what_the_other_one_has_made(
    target, in_small_steps, monkeypatch
):
    begun, may_go_on = threading.Event(), threading.Event()
    write = ModelVariables._write

    def slow(self, owner, refs, values):
        if float(np.asarray(values[0])[0]) == 1.0 and len(refs) == N:
            write(self, owner, refs[:5], values[:5])
            begun.set()
            assert may_go_on.wait(60)
        return write(self, owner, refs, values)

    monkeypatch.setattr(ModelVariables, "_write", slow)

    def program(number):
        with tf.connect(target):
            return maker_of(bound(number))

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(program, 1.0)
        try:
            assert begun.wait(60)
            assert program(2.0) == 2.0
        finally:
            may_go_on.set()
        assert first.result(60) == 2.0


KILLED = """
    import os, sys
    import jflow as tf
    from jflow.client.binding import making
    from tests.client.binding.test_one_maker import SIZE, bound

    making.STEP_BYTES = SIZE * 4
    steps_left = int(sys.argv[2])
    run = making.ModelVariables._run

    def until_killed(self, owner, access, refs, args=()):
        global steps_left
        if args:
            steps_left -= 1
            if steps_left < 0:
                os._exit(9)
        return run(self, owner, access, refs, args)

    making.ModelVariables._run = until_killed
    with tf.connect(sys.argv[1]):
        bound(1.0)
"""


@pytest.mark.parametrize("n_steps", [1, N - 1, N, N + 1])
def test_what_a_killed_program_has_made_in_part_does_not_pass_for_whole(target, n_steps):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", textwrap.dedent(KILLED), target, str(n_steps)]
    # A step for each of the twelve variables, then one for the records of both tasks.
    ended = subprocess.run(command, env=environment, timeout=120, check=False)
    assert ended.returncode == (9 if n_steps <= N else 0)
    with tf.connect(target):
        assert maker_of(bound(2.0)) == (2.0 if n_steps <= N else 1.0)
        assert maker_of(bound(3.0)) == (2.0 if n_steps <= N else 1.0), "it is whole now"


@pytest.fixture
def cluster():
    with tf.LocalCluster(ps=2, workers=1) as cluster:
        yield cluster


def test_variables_that_a_task_has_lost_are_an_error_until_they_are_made_anew(cluster, tmp_path):
    path = str(tmp_path / "model")
    with tf.connect(cluster.target("worker", 0)):
        tf.checkpoint.save(path, bound(1.0))
    cluster.kill("ps", 1)
    cluster.restart("ps", 1)
    with tf.connect(cluster.target("worker", 0)):
        with pytest.raises(errors.FailedPreconditionError, match="6 of 12 variables of 'model'"):
            bound(2.0)
        state = bound(2.0, make_anew=True)
        assert maker_of(state) == 2.0
        tf.checkpoint.restore(path, state)
        assert maker_of(bound(3.0)) == 1.0


def test_a_record_that_a_task_without_variables_has_lost_is_written_again(cluster):
    only = {"w": np.ones(3, np.float32)}
    with tf.connect(cluster.target("worker", 0)):
        tf.bind(only, "one", "/job:worker/task:0")  # the first task of the cluster is ps 0
    cluster.kill("ps", 0)
    cluster.restart("ps", 0)
    for _ in range(2):
        with tf.connect(cluster.target("worker", 0)):
            found = tf.bind({"w": np.zeros(3, np.float32)}, "one", "/job:worker/task:0")
            np.testing.assert_array_equal(found.value()["w"], np.ones(3))
    cluster.kill("worker", 0)
    cluster.restart("worker", 0)
    with (
        tf.connect(cluster.target("ps", 0)),
        pytest.raises(errors.FailedPreconditionError, match="1 of 1 variables of 'one' are lost"),
    ):
        tf.bind(only, "one", "/job:ps/task:1")


def test_it_waits_no_longer_than_the_timeout(target, monkeypatch):
    def fenced(self, maker, tasks, make_anew):
        raise errors.FencedError("another program")

    monkeypatch.setattr(ModelVariables, "_under_claim", fenced)
    config = tf.ConfigProto(operation_timeout_in_ms=300)
    with tf.connect(target, config), pytest.raises(errors.DeadlineExceededError, match="'model'"):
        bound(1.0)

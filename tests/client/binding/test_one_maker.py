"""All variables of a model come from one program, whatever dies while it makes them."""

from __future__ import annotations

import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest

import jflow as tf
from jflow import errors
from jflow.client.binding import making
from jflow.client.binding.making import ModelVariables
from jflow.compiler.graph import owners
from jflow.testing import ProcessCluster
from tests.clusters import in_process
from tests.scripts import run_script

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


def bound_by_program(target, number):
    """The number of the program that has made what one with this number binds."""
    with tf.connect(target):
        return maker_of(bound(number))


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
    monkeypatch.setattr(making, "PATIENCE_S", 0.2)
    write = ModelVariables._write

    def slow(self, owner, refs, values):
        if float(np.asarray(values[0])[0]) == 1.0 and refs[0].name == "model/w05":
            begun.set()
            assert may_go_on.wait(60)
        return write(self, owner, refs, values)

    monkeypatch.setattr(ModelVariables, "_write", slow)

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(bound_by_program, target, 1.0)
        try:
            assert begun.wait(60)
            assert bound_by_program(target, 2.0) == 2.0
        finally:
            may_go_on.set()
        assert first.result(60) == 2.0


def test_a_maker_that_goes_on_is_not_fenced_off(target, in_small_steps, monkeypatch):
    monkeypatch.setattr(making, "PATIENCE_S", 0.4)
    begun = threading.Event()
    write = ModelVariables._write

    def steady(self, owner, refs, values):
        if float(np.asarray(values[0])[0]) == 1.0:
            begun.set()
            time.sleep(0.1)  # all together take longer than the patience of others
        return write(self, owner, refs, values)

    monkeypatch.setattr(ModelVariables, "_write", steady)

    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(bound_by_program, target, 1.0)
        assert begun.wait(60)
        time.sleep(0.3)  # its mark is there
        assert bound_by_program(target, 2.0) == 1.0
        assert first.result(60) == 1.0


@pytest.mark.parametrize("options", [{}, {"make_anew": True}])
def test_two_that_make_it_anew_leave_the_model_of_one(target, in_small_steps, options):
    with tf.connect(target):
        bound(9.0)
    start = threading.Barrier(2)

    def program(number, **options):
        with tf.connect(target):
            start.wait(60)
            bound(number, **options)

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(program, 1.0, make_anew=True)
        second = threads.submit(program, 2.0, **options)
        first.result(60)
        second.result(60)
    with tf.connect(target):
        assert maker_of(bound(3.0)) in ((1.0, 2.0) if options else (1.0,))


def test_what_cannot_be_made_anew_loses_nothing(target):
    with tf.connect(target):
        bound(1.0)
        other = {name: np.ones(3, np.float32) for name in DEVICES}
        with pytest.raises(errors.InvalidArgumentError, match="already exists with"):
            tf.bind(other, "model", DEVICES, make_anew=True)
        assert maker_of(bound(2.0)) == 1.0


def test_a_program_that_is_fenced_off_makes_nothing(target):
    with tf.connect(target) as first, tf.connect(target) as second:
        first.claim("run")
        second.claim("run")
        with owners.owned_by(first), pytest.raises(errors.FencedError):
            bound(1.0, make_anew=True)
        with owners.owned_by(second):
            assert maker_of(bound(2.0)) == 2.0


def test_variables_that_exist_without_a_record_are_found_if_all_of_them_do(target):
    with tf.connect(target):
        for name, device in DEVICES.items():
            with tf.device(device):
                tf.Variable(np.full(SIZE, 5, np.float32), name=f"all/{name}")
        assert maker_of(bound(1.0, "all")) == 5.0
        with tf.device(DEVICES["w00"]):
            tf.Variable(np.full(SIZE, 5, np.float32), name="some/w00")
        with pytest.raises(errors.FailedPreconditionError, match="1 of the 12 variables of 'some'"):
            bound(1.0, "some")
        assert maker_of(bound(1.0, "some", make_anew=True)) == 1.0


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
def test_what_a_killed_program_has_made_in_part_does_not_pass_for_whole(
    target, monkeypatch, tmp_path, n_steps
):
    program = tmp_path / "killed.py"
    program.write_text(textwrap.dedent(KILLED))
    # A step for each of the twelve variables, then one for the records of both tasks.
    monkeypatch.setattr(making, "PATIENCE_S", 0.2)
    ended = run_script(program, target, str(n_steps))
    assert ended.returncode == (9 if n_steps <= N else 0), ended.stderr
    with tf.connect(target):
        assert maker_of(bound(2.0)) == (2.0 if n_steps <= N else 1.0)
        assert maker_of(bound(3.0)) == (2.0 if n_steps <= N else 1.0), "it is whole now"


@pytest.fixture
def cluster():
    with ProcessCluster(ps=2, workers=1) as cluster:
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


def test_a_model_that_was_restored_after_all_tasks_were_lost_is_found(cluster, tmp_path):
    path = str(tmp_path / "model")
    with tf.connect(cluster.target("worker", 0)):
        state = bound(1.0)
        tf.checkpoint.save(path, state)
        for task in range(2):
            cluster.kill("ps", task)
            cluster.restart("ps", task)
        for _ in range(3):  # what each task has lost is said once
            with suppress(errors.RestartedError):
                tf.checkpoint.restore(path, state)
                state.value()
                break
        assert maker_of(state) == 1.0
    with tf.connect(cluster.target("worker", 0)):
        assert maker_of(bound(2.0)) == 1.0


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
    def fenced(self, maker, tasks, former):
        raise errors.FencedError("another program")

    monkeypatch.setattr(ModelVariables, "_claimed", fenced)
    config = tf.ConfigProto(operation_timeout_in_ms=300)
    with tf.connect(target, config), pytest.raises(errors.DeadlineExceededError, match="'model'"):
        bound(1.0)

"""Placement requests in sessions of every kind."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import jflow as tf
from tests.clusters import Backend

SOFT = tf.ConfigProto(allow_soft_placement=True)


def test_a_device_function_spreads_a_program_over_devices(backend: Backend) -> None:
    def choose(op: tf.Operation) -> str | None:
        return {"sin": backend.devices[0], "cos": backend.devices[1]}.get(op.type)

    x = tf.constant([0.5, 1.5])
    with tf.device(choose):
        y = tf.numpy.cos(tf.numpy.sin(x))
    with backend.session() as session:
        np.testing.assert_allclose(session.run(y), np.cos(np.sin([0.5, 1.5])), rtol=1e-6)
        places = session.placement(y)
    assert places[y.op] != places[y.op.inputs[0].op]


def test_what_is_colocated_with_a_variable_runs_where_it_lives(backend: Backend) -> None:
    with tf.device(backend.devices[1]):
        v = tf.Variable([1.0, 2.0], name="v")
    with tf.device(backend.devices[0]), tf.colocate_with(v):
        y = tf.numpy.sum(v * 3)
    slope = tf.gradients(y, v)[0]
    with backend.session() as session:
        session.run(v.initializer)
        total, slopes = session.run([y, slope])
        assert total == 9.0
        np.testing.assert_array_equal(slopes, [3.0, 3.0])
        assert len(set(session.placement([y, slope, v]).values())) == 1


def test_operations_that_cannot_be_colocated_leave_the_session_usable(backend: Backend) -> None:
    a, b = tf.constant(1.0, name="a"), tf.constant(2.0)
    with tf.colocate_with(a):
        with tf.device(backend.devices[0]):
            c = a + b
        with tf.device(backend.devices[1]):
            d = a * b
    with backend.session() as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="Cannot colocate operation"):
            session.run([c, d])
        assert session.run(c) == 3.0


def test_soft_placement_runs_what_asks_for_a_device_that_is_not_there(backend: Backend) -> None:
    with tf.device("/device:TPU:3"):
        y = tf.constant(2.0) * 3
    with backend.session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="TPU"):
        session.run(y)
    with backend.session(config=SOFT) as session:
        assert session.run(y) == 6.0


@pytest.mark.parametrize("requested", ["/job:nowhere", "/task:99", "/job:nowhere/task:0/cpu:0"])
def test_soft_placement_does_not_invent_jobs_and_tasks(backend: Backend, requested: str) -> None:
    with tf.device(requested):
        y = tf.constant(2.0) * 3
    with (
        backend.session(config=SOFT) as session,
        pytest.raises(tf.errors.InvalidArgumentError, match="available are") as raised,
    ):
        session.run(y)
    assert f"{__file__}:" in str(raised.value)


def test_any_number_of_a_kind_is_a_request_for_the_kind(backend: Backend) -> None:
    with tf.device("/cpu:*"):
        y = tf.constant(2.0) * 3
    with backend.session() as session:
        assert session.run(y) == 6.0
        assert {place.type for place in session.placement(y).values()} == {"CPU"}


def test_the_log_of_device_placement_is_seen_without_any_setup() -> None:
    program = (
        "import jflow as tf\n"
        "y = tf.numpy.sin(tf.constant(1.0, name='x'), name='y')\n"
        "with tf.Session(config=tf.ConfigProto(log_device_placement=True)) as session:\n"
        "    session.run(y)\n"
        "    session.run(y)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    device = "/job:localhost/task:0/device:CPU:0"
    assert done.stderr.splitlines() == [f"x: (constant): {device}", f"y: (sin): {device}"]

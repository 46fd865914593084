"""Moving averages: names, what they begin with, restoring from them, synchronous training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import jflow as tf
from jflow.testing import wait_until
from tests.clusters import Backend

pytestmark = pytest.mark.usefixtures("fresh_graph")


def test_names_and_collections_are_tensorflows() -> None:
    with tf.name_scope("s"):
        v, u = tf.Variable(1.0, name="v"), tf.Variable(1.0, name="u", trainable=False)
        averages = tf.train.ExponentialMovingAverage(0.5, name="mean")
        move = averages.apply()
    average = averages.average(v)
    assert averages.name == "mean"
    assert (average.name, average.trainable, move.name) == ("s/v/mean:0", False, "s/mean")
    assert (averages.average_name(v), averages.average_name(u)) == ("s/v/mean", "s/u/mean")
    assert averages.average(u) is None
    assert average in tf.global_variables()
    assert tf.moving_average_variables() == [v]
    averages.apply([v])
    assert averages.average(v) is average
    assert tf.moving_average_variables() == [v]


def test_it_is_on_the_device_of_its_variable() -> None:
    with tf.device("/job:ps/task:3"):
        v = tf.Variable(1.0)
    averages = tf.train.ExponentialMovingAverage(0.9)
    with tf.device("/job:worker/task:1"):
        averages.apply([v])
    assert averages.average(v).device == v.device


def test_it_can_be_initialized_although_it_moves_after_something_that_waits(
    backend: Backend,
) -> None:
    queue = tf.FIFOQueue(1, [tf.float32], [()])
    v = tf.Variable(2.0)
    averages = tf.train.ExponentialMovingAverage(0.9)
    with tf.control_dependencies([queue.dequeue()]):
        averages.apply([v])
        tf.train.assign_moving_average(tf.Variable(0.0), v, 0.9)
        tf.train.weighted_moving_average(v * 1.0, 0.9, 1.0)
    with backend.session() as session:
        session.run(tf.global_variables_initializer(), options=tf.RunOptions(timeout_in_ms=30_000))
        assert session.run(averages.average(v)) == 2.0


def test_an_evaluation_restores_variables_from_their_averages(
    backend: Backend, tmp_path: Path
) -> None:
    v, n = tf.Variable(1.0, name="v"), tf.Variable(7, name="n", trainable=False)
    averages = tf.train.ExponentialMovingAverage(0.5)
    assert averages.variables_to_restore() == {"v/ExponentialMovingAverage": v, "n": n}
    assert averages.variables_to_restore([n]) == {"n/ExponentialMovingAverage": n, "v": v}
    move, saver = averages.apply(), tf.train.Saver()
    assert averages.variables_to_restore() == {"v/ExponentialMovingAverage": v, "n": n}
    with backend.session() as session:
        session.run(tf.global_variables_initializer())
        session.run(v.assign(3.0))
        session.run(move)
        path = saver.save(session, str(tmp_path / "model"))
    with tf.Graph().as_default(), backend.session() as session:
        v, n = tf.Variable(0.0, name="v"), tf.Variable(0, name="n", trainable=False)
        restored = tf.train.ExponentialMovingAverage(0.5).variables_to_restore()
        tf.train.Saver(restored).restore(session, path)
        assert session.run([v, n]) == [2.0, 7]


def test_parts_of_a_variable_have_averages_that_are_saved_as_one(tmp_path: Path) -> None:
    with tf.variable_scope("m", partitioner=tf.fixed_size_partitioner(2)):
        tf.get_variable("v", initializer=np.arange(4.0, dtype=np.float32))
    averages = tf.train.ExponentialMovingAverage(0.5)
    averages.apply()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        path = tf.train.Saver().save(session, str(tmp_path / "model"))
    saved = tf.train.load_checkpoint(path)
    name = "m/v/ExponentialMovingAverage"
    np.testing.assert_array_equal(saved.get_tensor(name), np.arange(4.0), strict=False)


def test_assigned_and_weighted_averages(backend: Backend) -> None:
    """The values are TensorFlow's, of `tensorflow.python.training.moving_averages`."""
    x, w = tf.placeholder(tf.float32, [2]), tf.placeholder(tf.float32, [])
    v = tf.Variable([0.0, 0.0], name="v")
    corrected = tf.train.assign_moving_average(v, x, 0.9)
    plain = tf.train.assign_moving_average(v, x, 0.9, zero_debias=False)
    weighted = tf.train.weighted_moving_average(x, 0.9, w)
    names = [one.op.name for one in tf.global_variables()]
    scope = "WeightedMovingAvg"
    assert names == ["v", "v/biased", "v/local_step", f"{scope}/value_x_weight", f"{scope}/weight"]
    with backend.session() as session:
        session.run(tf.global_variables_initializer())
        close = np.testing.assert_allclose
        close(session.run(corrected, {x: [1, 2]}), [1.0, 2.0], rtol=1e-5)
        close(session.run(corrected, {x: [3, 4]}), [2.052631, 3.052631], rtol=1e-5)
        close(session.run(plain, {x: [0, 0]}), [1.847368, 2.747368], rtol=1e-5)
        close(session.run(weighted, {x: [1, 2], w: 1.0}), [1.0, 2.0], rtol=1e-5)
        close(session.run(weighted, {x: [3, 4], w: 3.0}), [2.538461, 3.538461], rtol=1e-5)


def test_what_has_no_average_is_refused() -> None:
    averages = tf.train.ExponentialMovingAverage(0.9)
    with pytest.raises(TypeError, match=r"of floats, got <jflow\.Variable 'n:0'"):
        averages.apply([tf.Variable(1, name="n")])
    with pytest.raises(TypeError, match=r"expected variables of a graph and tensors, got 3\.0"):
        averages.apply([3.0])
    with pytest.raises(ValueError, match="needs a known shape"):
        averages.apply([tf.placeholder(tf.float32, [None])])
    with pytest.raises(TypeError, match="expected a variable that keeps an average"):
        tf.train.assign_moving_average(tf.constant(1.0), 2.0, 0.9)
    with tf.connect(), pytest.raises(TypeError, match=r"average\.assign\(0\.99"):
        averages.apply([tf.Variable(1.0)])


def test_averages_of_synchronous_replicas_move_once_a_round() -> None:
    """The values are TensorFlow's."""
    v, step = tf.Variable(1.0, name="v"), tf.train.get_or_create_global_step()
    averages = tf.train.ExponentialMovingAverage(0.9)
    optimizer = tf.train.SyncReplicasOptimizer(
        tf.train.GradientDescentOptimizer(0.1),
        1,
        variable_averages=averages,
        variables_to_average=[v],
    )
    train, hook = optimizer.minimize(v * v, step), optimizer.make_session_run_hook(is_chief=True)
    with tf.train.MonitoredTrainingSession(hooks=[hook]) as session:
        for _ in range(4):
            session.run(train)

        def is_between_rounds() -> bool:
            value, average = session.run([v, averages.average(v)])
            return any(np.allclose([value, average], one, rtol=1e-5) for one in ROUNDS)

        wait_until(is_between_rounds, "a round to end with its average")


ROUNDS = [(0.8, 0.98), (0.64, 0.946), (0.512, 0.9026)]
"""The values of the variable and of its average after each round."""

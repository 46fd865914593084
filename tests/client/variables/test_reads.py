"""Uses of variables after control inputs, beyond the values that TensorFlow has, too."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.launch.testing.backends import BackendUnderTest as Backend

pytestmark = pytest.mark.usefixtures("fresh_graph")


def _after_an_update(v, *uses):
    """What each use gives in a step of its own, after `v.assign_add(1)`."""
    with tf.control_dependencies([v.assign_add(np.ones(v.shape, np.float32))]):
        return [use() for use in uses]


def test_functions_closures_and_lifted_calls_read_after_the_control_inputs(
    backend: Backend,
) -> None:
    v = tf.Variable([1.0, 2.0])

    @tf.function
    def doubled():
        return v.value() * 2

    uses = _after_an_update(
        v,
        doubled,
        lambda: tf.numpy.sum(v),
        lambda: tf.lax.cond(tf.constant(True), lambda: v.value() * 2, v.value),
        lambda: v[0] * 2,
    )
    with backend.session() as session:
        for use, expected in zip(uses, [[4, 6], 5, [4, 6], 4], strict=True):
            session.run(v.initializer)
            np.testing.assert_array_equal(session.run(use), expected)


def test_a_use_on_another_device_reads_after_the_control_inputs(backend: Backend) -> None:
    with tf.device(backend.devices[0]):
        v = tf.Variable(1.0)
    with tf.device(backend.devices[-1]):
        (use,) = _after_an_update(v, lambda: v * 10)
    with backend.session() as session:
        session.run(v.initializer)
        assert session.run(use) == 20.0


def test_a_partitioned_variable_is_read_after_the_control_inputs(backend: Backend) -> None:
    with tf.variable_scope("whole", partitioner=tf.fixed_size_partitioner(2)):
        v = tf.get_variable("v", initializer=np.array([1.0, 2.0, 3.0], np.float32))
    added = [part.assign_add(np.ones(part.shape, np.float32)) for part in v]
    with tf.control_dependencies(added):
        use, concatenated = v * 2, v.as_tensor()
    before = v * 1
    with backend.session() as session:
        session.run(tf.global_variables_initializer())
        np.testing.assert_array_equal(session.run(use), [4, 6, 8])
        np.testing.assert_array_equal(session.run(concatenated), [3, 4, 5])
        np.testing.assert_array_equal(session.run(before), [3, 4, 5])


def test_a_copy_on_a_caching_device_stays_what_it_is(backend: Backend) -> None:
    v = tf.Variable(1.0, caching_device=backend.devices[-1])
    use, cached = _after_an_update(v, lambda: v + 0.0, v.value)
    assert cached is v.value()
    with backend.session() as session:
        session.run(v.initializer)
        session.run(v.assign_add(1.0))
        assert session.run(use) in {2.0, 3.0}


def test_a_variable_of_varying_size_is_never_read_from_before_the_control_inputs(
    backend: Backend,
) -> None:
    v = tf.Variable([1.0], validate_shape=False)
    with tf.control_dependencies([v.assign([2.0, 3.0])]):
        use = v + v
    with backend.session() as session:
        session.run(v.initializer)
        try:
            value = session.run(use)
        except tf.errors.InvalidArgumentError:  # one program cannot do both
            return
        np.testing.assert_array_equal(value, [4, 6])


def test_uses_in_one_block_share_a_read_and_others_make_none(backend: Backend) -> None:
    v = tf.Variable(1.0, name="v")
    graph = tf.get_default_graph()
    with tf.control_dependencies([v.assign_add(1.0)]):
        n_before = len(graph.get_operations())
        with backend.session() as session:
            session.run(v.initializer)
            assert session.run(v) == 1.0
            assert session.run("v:0", {v: 7.0}) == 7.0
            assert v.eval(session) == 1.0
        tf.gradients(tf.constant(1.0), v)
        assert len(graph.get_operations()) == n_before + 1
        v + v
    reads = [op.name for op in graph.get_operations() if op.type == "read"]
    assert reads == ["v/read", "v/read_1"]


def test_a_graph_file_keeps_what_is_read_after_control_inputs(tmp_path) -> None:
    v = tf.Variable(1.0, name="v")
    (use,) = _after_an_update(v, lambda: v * 10)
    tf.add_to_collection("use", use)
    tf.train.export_meta_graph(str(tmp_path / "graph"))
    with tf.Graph().as_default():
        tf.train.import_meta_graph(str(tmp_path / "graph"))
        (again,) = tf.get_collection("use")
        (w,) = tf.global_variables()
        with tf.Session() as session:
            session.run(w.initializer)
            assert session.run(again) == 20.0
            assert session.run(w) == 2.0


def test_gradients_after_a_step_train_with_what_the_step_has_left() -> None:
    w = tf.Variable(jnp.array([1.0, 2.0]))
    step = tf.train.GradientDescentOptimizer(0.1)
    first = step.minimize(tf.numpy.sum(w * w))
    with tf.control_dependencies([first]):
        loss = tf.numpy.sum(w * w)
        (slope,) = tf.gradients(loss, w)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        value, gradient = session.run([loss, slope])
    np.testing.assert_allclose(value, 3.2, rtol=1e-6)
    np.testing.assert_allclose(gradient, [1.6, 3.2], rtol=1e-6)

"""Variables and functions that JAX traces: none is made inside of one, and no tracer leaves it."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import jflow as tf
from jflow.launch.testing.backends import BackendUnderTest as Backend

pytestmark = pytest.mark.usefixtures("fresh_graph")


def _in_a_branch(make):
    c = tf.constant(0)
    return tf.lax.cond(c < 10, lambda: make() + 0.0, lambda: 0.0)


def _in_a_switch(make):
    return tf.lax.switch(tf.constant(1), [lambda: 0.0, lambda: make() + 0.0])


def _in_the_body_of_a_loop(make):
    return tf.lax.while_loop(lambda i: i < 3.0, lambda i: i + 1.0 + make(), 0.0)


def _in_the_condition_of_a_loop(make):
    return tf.lax.while_loop(lambda i: i < 3.0 + make(), lambda i: i + 1.0, 0.0)


def _in_a_scan(make):
    return tf.lax.scan(lambda carry, x: (carry + x + make(), None), 0.0, tf.constant([1.0, 2.0]))


def _in_a_function(make):
    return tf.function(lambda x: x * make())(tf.constant(3.0))


def _in_what_is_differentiated(make):
    return tf.function(jax.grad(lambda x: x * make()))(tf.constant(3.0))


def _plain():
    return tf.Variable(1.0)


def _computed():
    return tf.Variable(tf.constant(0.0) + 0.0)


def _of_a_scope():
    return tf.get_variable("g", (), initializer=tf.constant_initializer(1.0))


@pytest.mark.parametrize("make", [_plain, _computed, _of_a_scope])
@pytest.mark.parametrize(
    "trace",
    [
        _in_a_branch,
        _in_a_switch,
        _in_the_body_of_a_loop,
        _in_the_condition_of_a_loop,
        _in_a_scan,
        _in_a_function,
        _in_what_is_differentiated,
    ],
)
def test_a_variable_made_inside_of_what_jax_traces_is_refused_at_its_line(trace, make) -> None:
    refused = rf"JAX traces \(at .*in {make.__name__}\).*create it once"
    with pytest.raises(ValueError, match=refused):
        trace(make)
    assert tf.global_variables() == []
    assert [op.type for op in tf.get_default_graph().get_operations() if op.type == "read"] == []
    # The name is still free, and what was refused left nothing behind.
    assert tf.get_variable("g", ()).name == "g:0"


def test_an_eager_variable_made_inside_of_a_function_is_refused_at_its_line() -> None:
    with (
        tf.connect(),
        pytest.raises(ValueError, match=r"JAX traces \(at .*in _plain\).*create it once"),
    ):
        tf.function(lambda x: x * _plain())(3.0)


def test_a_variable_made_before_is_found_inside_of_a_branch(backend: Backend) -> None:
    v = tf.get_variable("v", initializer=2.0)

    def again():
        with tf.variable_scope("", reuse=True):
            return tf.get_variable("v") * 3.0

    found = tf.lax.cond(tf.constant(True), again, lambda: 0.0)
    with backend.session() as session:
        session.run(v.initializer)
        assert session.run(found) == 6.0


def test_a_use_inside_of_a_branch_leaves_no_tracer_behind(backend: Backend) -> None:
    v, outer = tf.Variable(2.0), tf.constant(3.0)
    with tf.control_dependencies([v.assign_add(1.0)]):
        with pytest.raises(Exception, match=r"tensor|Tensor"):
            tf.lax.cond(tf.constant(True), lambda: v * outer, lambda: 0.0)
        inside = tf.lax.cond(tf.constant(True), lambda: v * 2.0, lambda: 0.0)
        after = v * 1.0
    with backend.session() as session:
        session.run(v.initializer)
        np.testing.assert_array_equal(session.run([inside, after]), [6.0, 3.0])


def test_gradients_by_a_variable_with_a_caching_device_are_those_of_the_variable(
    backend: Backend,
) -> None:
    v = tf.Variable(3.0, caching_device=backend.devices[0])
    (slope,) = tf.gradients(v * v.read_value(), v)
    with backend.session() as session:
        session.run(v.initializer)
        assert session.run(slope) == 6.0


def test_gradients_by_a_partitioned_variable_name_its_parts() -> None:
    with tf.variable_scope("whole", partitioner=tf.fixed_size_partitioner(2)):
        v = tf.get_variable("v", (4,))
    with pytest.raises(TypeError, match="parts"):
        tf.gradients(v * 2.0, v)

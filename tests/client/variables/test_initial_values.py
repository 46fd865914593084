"""Initial values that are computed from other variables."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import jflow as tf
from jflow.launch.testing.backends import BackendUnderTest as Backend

pytestmark = pytest.mark.usefixtures("fresh_graph")


def test_a_variable_initialized_from_another_one_does_not_need_it_to_be_initialized(
    backend: Backend,
) -> None:
    with tf.device(backend.devices[0]):
        v = tf.Variable([1.0, 2.0], name="v")
    with tf.device(backend.devices[-1]):
        plain = tf.Variable(v, name="plain")
        computed = tf.Variable(lambda: tf.numpy.sum(v * 3.0) + plain[0], name="computed")
        by_scope = tf.get_variable("by_scope", initializer=computed * plain)
    with backend.session() as session:
        session.run(by_scope.initializer)
        np.testing.assert_array_equal(session.run(by_scope), [10.0, 20.0])
        assert session.run(tf.report_uninitialized_variables()).tolist() == [
            *(b"v", b"plain", b"computed")
        ]
        session.run(computed.initializer)
        assert session.run(computed) == 10.0
        session.run(v.assign([5.0, 6.0]))
        session.run([plain.initializer, by_scope.initializer])
        np.testing.assert_array_equal(session.run(plain), [5.0, 6.0])


def test_initializing_all_again_gives_all_their_initial_values(backend: Backend) -> None:
    variables = []
    for number, device in enumerate((backend.devices[0], backend.devices[-1])):
        with tf.device(device):
            first = tf.get_variable(f"v{number}", (3,), initializer=tf.zeros_initializer())
            second = tf.Variable(first + 1.0)
            third = tf.Variable(tf.numpy.exp(second - 1.0) + first)
            variables.append((first, second, third))
    everything = tf.global_variables_initializer()
    with backend.session() as session:
        for _ in range(3):
            session.run(everything)
            for first, second, third in variables:
                values = session.run([first, second, third])
                np.testing.assert_array_equal(values, [[0.0] * 3, [1.0] * 3, [1.0] * 3])
                session.run([v.assign([7.0, 8.0, 9.0]) for v in (first, second, third)])


def test_a_random_initial_value_is_drawn_once(backend: Backend) -> None:
    with tf.device(backend.devices[0]):
        v = tf.get_variable("v", (3,))
    copies = [tf.Variable(v), tf.Variable(v * 1.0)]
    with backend.session() as session:
        session.run([copy.initializer for copy in copies])
        session.run(v.initializer)
        first, *others = session.run([v, *copies])
        for other in others:
            np.testing.assert_array_equal(first, other)
        session.run(tf.global_variables_initializer())
        first, *others = session.run([v, *copies])
        for other in others:
            np.testing.assert_array_equal(first, other)


def test_keys_parts_and_loaded_values_are_initial_values_too(backend: Backend) -> None:
    key = tf.Variable(jax.random.key(3), trainable=False)
    same_key = tf.Variable(key, trainable=False)
    drawn = tf.Variable(tf.random.normal(key.value(), (2,)))
    whole = tf.Variable(np.arange(4, dtype=np.float32))
    parts = tf.get_variable(
        "parts", initializer=whole * 2.0, partitioner=tf.fixed_size_partitioner(2)
    )
    with backend.session() as session:
        session.run([v.initializer for v in (same_key, drawn, *parts)])
        np.testing.assert_array_equal(session.run(parts), [0.0, 2.0, 4.0, 6.0])
        expected = jax.random.normal(jax.random.key(3), (2,))
        np.testing.assert_allclose(session.run(drawn), expected, rtol=1e-6)
        drawn.load(np.array([5.0, 6.0], np.float32), session)
        np.testing.assert_array_equal(session.run(drawn), [5.0, 6.0])


def test_what_a_user_orders_or_feeds_stays_as_it_is(backend: Backend) -> None:
    given = tf.placeholder(tf.float32, (), name="given")
    fed = tf.Variable(given, name="fed")
    of_fed = tf.Variable(fed * 2.0)
    v = tf.Variable(1.0)
    with tf.control_dependencies([v.assign(10.0)]):
        ordered = tf.Variable(v * 2.0)
    written = tf.Variable(v.assign_add(1.0))
    with backend.session() as session:
        with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized value fed"):
            session.run(of_fed.initializer)
        session.run(fed.initializer, {given: 3.0})
        session.run(of_fed.initializer)
        session.run(ordered.initializer)
        assert session.run([of_fed, ordered, v]) == [6.0, 20.0, 10.0]
        session.run(written.initializer)
        assert session.run([written, v]) == [11.0, 11.0]


def test_an_initial_value_without_variables_makes_no_more_operations() -> None:
    tf.Variable(tf.constant(1.0) * 2.0, name="v")
    v = tf.Variable(lambda: tf.numpy.ones((2,)), name="w")
    tf.Variable(v, name="copy")
    assert [op.name for op in tf.get_default_graph().get_operations() if op.type == "value_or"] == [
        "copy/initial_value"
    ]


def test_a_graph_file_keeps_what_initial_values_need(tmp_path) -> None:
    v = tf.Variable([1.0, 2.0], name="v")
    tf.Variable(v * 3.0, name="w")
    tf.train.export_meta_graph(str(tmp_path / "graph"))
    with tf.Graph().as_default():
        tf.train.import_meta_graph(str(tmp_path / "graph"))
        v, w = tf.global_variables()
        u = tf.Variable(w + v, name="u")
        with tf.Session() as session:
            session.run(u.initializer)
            np.testing.assert_array_equal(session.run(u), [4.0, 8.0])
            session.run(w.initializer)
            np.testing.assert_array_equal(session.run(w), [3.0, 6.0])

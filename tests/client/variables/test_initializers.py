"""Initializers: their values, dtypes and seeds, and the kinds of functions that are accepted."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.client.variables.initializers import PartitionInfo, default_initializer, initial_value


def value_of(initializer: Any, shape: list[int], dtype: Any = tf.float32) -> np.ndarray:
    """A value as `get_variable` gets it, computed at once."""
    with tf.connect():
        if isinstance(initializer, type):
            initializer = initializer()
        if initializer is None:
            initializer = default_initializer("v", np.dtype(dtype))
        return np.asarray(initial_value(initializer, tuple(shape), dtype, None))


def test_fixed_values_fill_the_shape() -> None:
    assert value_of(tf.zeros_initializer, [2]).tolist() == [0.0, 0.0]
    assert value_of(tf.ones_initializer(), [2], tf.int32).tolist() == [1, 1]
    assert value_of(tf.constant_initializer(3), [2], tf.bfloat16).tolist() == [3.0, 3.0]
    assert value_of(tf.constant_initializer([1, 2]), [2, 2]).tolist() == [[1.0, 2.0], [2.0, 2.0]]
    assert value_of(tf.initializers.identity(gain=2.0), [2, 3]).tolist() == [[2, 0, 0], [0, 2, 0]]
    assert value_of(None, [2], tf.int32).tolist() == [0, 0]
    assert value_of(None, [2], tf.bool).tolist() == [False, False]
    with pytest.raises(ValueError, match=r"3 initial values do not fit the shape \(2,\)"):
        value_of(tf.constant_initializer([1, 2, 3]), [2])
    with pytest.raises(ValueError, match="has two dimensions"):
        value_of(tf.initializers.identity(), [2])


MOMENTS = {
    tf.random_normal_initializer(1.0, 2.0): (1.0, 2.0, 9.0),
    tf.truncated_normal_initializer(1.0, 2.0): (1.0, 2.0 * 0.8796, 4.0),
    tf.random_uniform_initializer(-1.0, 3.0): (1.0, 4 / math.sqrt(12), 2.0),
    tf.random_normal_initializer(): (0.0, 1.0, 6.0),
    tf.truncated_normal_initializer(): (0.0, 0.8796, 2.0),
    tf.random_uniform_initializer(): (0.5, 1 / math.sqrt(12), 0.5),
    tf.glorot_uniform_initializer(): (0.0, math.sqrt(2 / 300), math.sqrt(6 / 300)),
    tf.glorot_normal_initializer(): (0.0, math.sqrt(2 / 300), 1.0),
    tf.initializers.he_normal(): (0.0, math.sqrt(2 / 100), 1.0),
    tf.initializers.he_uniform(): (0.0, math.sqrt(2 / 100), math.sqrt(6 / 100)),
    tf.initializers.lecun_normal(): (0.0, math.sqrt(1 / 100), 1.0),
    tf.initializers.lecun_uniform(): (0.0, math.sqrt(1 / 100), math.sqrt(3 / 100)),
    tf.variance_scaling_initializer(3.0, "fan_out"): (0.0, math.sqrt(3 / 200), 1.0),
    tf.variance_scaling_initializer(distribution="untruncated_normal"): (0.0, 0.1, 1.0),
}
"""Mean, standard deviation, and largest distance from the mean, for the shape [100, 200]."""


def test_random_values_have_the_moments_of_their_distribution() -> None:
    tf.set_random_seed(0)
    with tf.connect():
        values = {each: np.asarray(each([100, 200])) for each in MOMENTS}
    for initializer, (mean, stddev, limit) in MOMENTS.items():
        drawn = values[initializer]
        assert abs(drawn.mean() - mean) < 0.05 * stddev, initializer
        assert abs(drawn.std() / stddev - 1) < 0.03, initializer
        assert np.abs(drawn - mean).max() <= limit * (1 + 1e-6), initializer


def test_an_orthogonal_matrix_is_one() -> None:
    q = value_of(tf.orthogonal_initializer(gain=2.0, seed=1), [8, 4])
    np.testing.assert_allclose(q.T @ q, 4 * np.eye(4), atol=1e-5)


def test_vectors_and_scalars_count_as_their_own_connections() -> None:
    assert np.abs(value_of(None, [300])).max() <= math.sqrt(3 / 300)
    assert value_of(tf.glorot_normal_initializer(), []).shape == ()
    with pytest.raises(ValueError, match="`mode` must be"):
        tf.variance_scaling_initializer(mode="fan")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`scale` must be"):
        tf.variance_scaling_initializer(scale=-1)
    with pytest.raises(ValueError, match="`distribution` must be"):
        tf.variance_scaling_initializer(distribution="cauchy")  # type: ignore[arg-type]


def test_seeds_repeat_values_and_no_seed_draws_others() -> None:
    seeded = tf.random_normal_initializer(seed=3)
    np.testing.assert_array_equal(value_of(seeded, [4]), value_of(seeded, [4]))
    assert not np.array_equal(value_of(None, [4]), value_of(None, [4]))

    def two(*seeds: int | None) -> list[np.ndarray]:
        with tf.Graph().as_default():
            for seed in seeds:
                tf.set_random_seed(seed)
            pair = [tf.get_variable(name, [4]) for name in "ab"]
            with tf.Session() as session:
                session.run(tf.global_variables_initializer())
                return session.run(pair)

    first, again, other = two(1), two(1), two(2)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first, two(1, None))
    assert not np.array_equal(two(None), two(None))
    with pytest.raises(TypeError, match="expected an integer or None as seed"):
        tf.set_random_seed("a")  # type: ignore[arg-type]


def test_parts_of_a_variable_are_not_copies_of_each_other() -> None:
    for initializer in (tf.random_normal_initializer(seed=5), jax.nn.initializers.normal()):
        with tf.connect():
            parts = [
                initial_value(initializer, (4,), tf.float32, PartitionInfo((12,), (offset,)))
                for offset in (0, 4, 8)
            ]
        assert len(np.unique(parts)) == 12


def test_integers_are_drawn_uniformly() -> None:
    drawn = value_of(tf.random_uniform_initializer(2, 5), [1000], tf.int32)
    assert set(drawn.tolist()) == {2, 3, 4}
    with pytest.raises(TypeError, match="makes floating-point values"):
        value_of(tf.random_normal_initializer(), [2], tf.int32)
    with pytest.raises(ValueError, match="Must specify maxval for integer dtype int32"):
        value_of(tf.random_uniform_initializer(), [2], tf.int32)


def test_jax_s_initializers_and_plain_functions_are_initializers() -> None:
    def of_key(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        return jax.random.bernoulli(key, 0.5, shape).astype(dtype)

    assert value_of(jax.nn.initializers.ones, [2]).tolist() == [1.0, 1.0]
    assert value_of(jax.nn.initializers.he_normal(), [4, 4]).std() > 0
    assert set(value_of(of_key, [100], tf.int32).tolist()) == {0, 1}
    assert value_of(lambda shape: jnp.full(shape, 2.0), [2]).tolist() == [2.0, 2.0]
    assert value_of(lambda shape, dtype: 1 * jnp.ones(shape, dtype), [2]).tolist() == [1.0, 1.0]
    assert value_of(lambda: np.array([5.0, 6.0]), [2]).tolist() == [5.0, 6.0]
    with pytest.raises(ValueError, match=r"returned a value of shape \(3,\), expected \(2,\)"):
        tf.get_variable("v", [2], initializer=lambda: np.ones(3, np.float32))
    with pytest.raises(TypeError, match="requested with dtype float32"):
        tf.get_variable("v", [2], initializer=lambda: tf.constant([1, 2]))


def test_outside_of_graphs_an_initializer_gives_an_array() -> None:
    with tf.connect():
        drawn = tf.initializers.he_normal(seed=1)([3, 3])
    assert isinstance(drawn, jax.Array)
    assert drawn.shape == (3, 3)


@pytest.mark.parametrize(
    "make", [tf.zeros_initializer, tf.ones_initializer, tf.constant_initializer]
)
def test_an_initializer_of_strings_is_refused_because_variables_hold_none(
    make: Any,
) -> None:
    with pytest.raises(ValueError, match=r"cannot be jflow\.string; variables hold"):
        make(dtype=tf.string)
    with pytest.raises(TypeError, match="makes no strings; variables hold numbers"):
        tf.get_variable("v", [2], dtype=tf.string, initializer=make())


def test_random_integers_are_uniform_and_wrong_values_of_constants_are_refused_at_once() -> None:
    assert tf.random_uniform_initializer(0, 5, dtype=tf.int32)([3]).dtype == np.int32
    with pytest.raises(ValueError, match="the dtype of RandomUniform must be a number"):
        tf.random_uniform_initializer(dtype=tf.bool)
    for value in (tf.constant(1.0), tf.Variable(1.0), object(), None):
        with pytest.raises(TypeError, match="expected a number, list or array as the value"):
            tf.constant_initializer(value)
    for value in (1, 2.5, True, [1, 2], (1,), np.ones(2), np.float32(1), jax.numpy.ones(2)):
        tf.constant_initializer(value)

"""Operations that draw random numbers: others in each step, the same ones for a seed."""

import numpy as np
import pytest

import jflow as tf
from jflow.errors import UnimplementedError
from tests.clusters import Backend


def test_each_step_draws_other_numbers(backend: Backend):
    x = tf.random_normal([1000], mean=3.0, stddev=2.0)
    both = [x, x + 0.0, tf.random_normal([1000], mean=3.0, stddev=2.0)]
    with backend.session() as session:
        first, same, other = session.run(both)
        later = session.run(x)
    assert np.array_equal(first, same), "one operation draws once in a step"
    assert not np.array_equal(first, other)
    assert not np.array_equal(first, later)
    for values in (first, later):
        assert abs(values.mean() - 3.0) < 0.3
        assert abs(values.std() - 2.0) < 0.3


def _sequence(backend, make, n=3):
    with tf.Graph().as_default():
        x = make()
        with backend.session() as session:
            return [session.run(x).tolist() for _ in range(n)]


def test_a_seed_gives_each_session_the_same_sequence(backend: Backend):
    def seeded():
        return tf.random_uniform([3], seed=7)

    once = _sequence(backend, seeded)
    assert once == _sequence(backend, seeded)
    assert len({*map(tuple, once)}) == 3
    assert once != _sequence(backend, lambda: tf.random_uniform([3], seed=8))
    assert _sequence(backend, lambda: tf.random_uniform([3])) != _sequence(
        backend, lambda: tf.random_uniform([3])
    )


def test_the_seed_of_the_graph_is_that_of_its_operations(backend: Backend):
    def make(seed):
        tf.set_random_seed(seed)
        return tf.stack([tf.random_uniform([]), tf.random_uniform([])])

    once = _sequence(backend, lambda: make(1))
    assert once == _sequence(backend, lambda: make(1))
    assert once != _sequence(backend, lambda: make(2))
    assert once[0][0] != once[0][1], "each operation has a seed of its own"


def test_the_distributions(backend: Backend):
    size = tf.placeholder(tf.int32, [])
    fetches = {
        "truncated": tf.truncated_normal([2000], stddev=0.5, seed=1),
        "floats": tf.random_uniform([2000], -1.0, 3.0, seed=1),
        "integers": tf.random_uniform([2000], 2, 5, tf.int32, seed=1),
        "shuffled": tf.random_shuffle(np.arange(20, dtype=np.int32), seed=1),
        "crop": tf.random_crop(np.arange(20, dtype=np.float32).reshape(4, 5), [2, 3], seed=1),
        "classes": tf.multinomial(np.log(np.float32([[0.2, 0.8, 1e-9]])), 2000, seed=1),
        "dropped": tf.nn.dropout(tf.ones([2000]), keep_prob=0.25, seed=1),
        "rows": tf.nn.dropout(tf.ones([50, 4]), rate=0.5, noise_shape=[50, 1], seed=1),
        "sized": tf.random_normal([size, 2]),
    }
    with backend.session() as session:
        values = session.run(fetches, {size: 5})
    assert np.abs(values["truncated"]).max() <= 1.0
    assert values["truncated"].std() > 0.3
    assert -1.0 <= values["floats"].min() < -0.9 < 2.9 < values["floats"].max() < 3.0
    assert {*values["integers"].tolist()} == {2, 3, 4}
    assert sorted(values["shuffled"].tolist()) == [*range(20)]
    assert values["shuffled"].tolist() != [*range(20)]
    crop = values["crop"]
    assert crop.shape == (2, 3)
    assert np.array_equal(np.diff(crop, axis=1), np.ones((2, 2)))
    assert values["classes"].shape == (1, 2000)
    assert abs((values["classes"] == 1).mean() - 0.8) < 0.05
    assert {*values["dropped"].tolist()} == {0.0, 4.0}
    assert abs((values["dropped"] > 0).mean() - 0.25) < 0.05
    assert all(len({*row}) == 1 for row in values["rows"].tolist())
    assert values["sized"].shape == (5, 2)


def test_a_variable_begins_with_drawn_values(backend: Backend):
    v = tf.Variable(tf.truncated_normal([4, 2], stddev=0.1, seed=3), name="v")
    with backend.session() as session:
        session.run(v.initializer)
        first = session.run(v)
        session.run(v.initializer)
        assert not np.array_equal(first, session.run(v))
        assert np.abs(first).max() <= 0.2


def test_gradients_flow_through_what_is_drawn():
    x = tf.placeholder(tf.float32, [100])
    y = tf.nn.dropout(x, rate=0.5)
    (slope,) = tf.gradients(y, x)
    with tf.Session() as session:
        values, slopes = session.run([y, slope], {x: np.ones(100)})
    assert np.array_equal(values, slopes)
    assert {*slopes.tolist()} == {0.0, 2.0}


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="maxval for integer"):
        tf.random_uniform([2], dtype=tf.int32)
    with pytest.raises(ValueError, match="one of keep_prob and rate"):
        tf.nn.dropout(tf.ones([2]))
    with pytest.raises(ValueError, match="from 0 to 1"):
        tf.nn.dropout(tf.ones([2]), keep_prob=1.5)
    with pytest.raises(ValueError, match="dropout scales floats"):
        tf.nn.dropout(tf.constant([1, 2]), rate=0.5)
    with pytest.raises(UnimplementedError, match=r"random_normal .* jax\.random"):
        tf.function(lambda: tf.random_normal([2]))()
    with tf.connect(), pytest.raises(UnimplementedError, match=r"jax\.random"):
        tf.random_normal([2])

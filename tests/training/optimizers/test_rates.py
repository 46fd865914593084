"""Learning rates that decay, clipping, and the global step."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jflow as tf

STEPS = [0, 1, 4, 5, 9, 10, 11, 25]

DECAYS: dict[str, tuple[Any, Any]] = {
    "exponential": (
        lambda s: tf.train.exponential_decay(0.5, s, 10, 0.9),
        optax.exponential_decay(0.5, 10, 0.9),
    ),
    "staircase": (
        lambda s: tf.train.exponential_decay(0.5, s, 10, 0.9, staircase=True),
        optax.exponential_decay(0.5, 10, 0.9, staircase=True),
    ),
    "natural": (
        lambda s: tf.train.natural_exp_decay(0.5, s, 10, 0.9),
        lambda step: 0.5 * np.exp(-0.9 * step / 10),
    ),
    "inverse": (
        lambda s: tf.train.inverse_time_decay(0.5, s, 10, 0.9),
        lambda step: 0.5 / (1 + 0.9 * step / 10),
    ),
    "polynomial": (
        lambda s: tf.train.polynomial_decay(0.5, s, 10, 0.1, power=2.0),
        optax.polynomial_schedule(0.5, 0.1, 2.0, 10),
    ),
    "cycle": (
        lambda s: tf.train.polynomial_decay(0.5, s, 10, 0.1, cycle=True),
        lambda step: 0.4 * (1 - step / (10 * max(1, -(-step // 10)))) + 0.1,
    ),
    "cosine": (
        lambda s: tf.train.cosine_decay(0.5, s, 10, 0.1),
        optax.cosine_decay_schedule(0.5, 10, 0.1),
    ),
    "piecewise": (
        lambda s: tf.train.piecewise_constant(s, [4, 10], [3.0, 2.0, 1.0]),
        lambda step: 3.0 if step <= 4 else 2.0 if step <= 10 else 1.0,
    ),
}


@pytest.mark.parametrize("name", DECAYS)
def test_a_learning_rate_decays_with_the_global_step(name: str) -> None:
    make, expected = DECAYS[name]
    step = tf.train.create_global_step()
    rate = make(step)
    with tf.Session() as session:
        for number in STEPS:
            step.load(number, session)
            np.testing.assert_allclose(session.run(rate), expected(number), rtol=1e-5)


def test_boundaries_have_to_grow_and_to_fit_the_values() -> None:
    for boundaries, values in (([1, 2], [1.0, 2.0]), ([2, 1], [1.0, 2.0, 3.0])):
        with pytest.raises(ValueError, match=r"expected (one value more|boundaries that grow)"):
            tf.train.piecewise_constant(tf.constant(1), boundaries, values)


def test_gradients_are_clipped_together() -> None:
    given = [np.array([3.0, 4.0], np.float32), np.full((2, 2), 6.0, np.float32)]
    clipped, norm = tf.clip_by_global_norm([tf.constant(given[0]), None, tf.constant(given[1])], 1)
    unchanged, _ = tf.clip_by_global_norm([tf.constant(given[0])], 10.0)
    infinite, _ = tf.clip_by_global_norm([tf.constant([np.inf, 1.0])], 1.0)
    assert clipped[1] is None
    with tf.Session() as session:
        first, second, total = session.run([clipped[0], clipped[2], norm])
        expected, _ = optax.clip_by_global_norm(1.0).update([*map(jnp.asarray, given)], None)
        np.testing.assert_allclose(total, 13.0)
        np.testing.assert_allclose(first, expected[0], rtol=1e-6)
        np.testing.assert_allclose(second, expected[1], rtol=1e-6)
        assert session.run(unchanged)[0].tolist() == [3.0, 4.0]
        assert np.isnan(session.run(infinite)[0]).all()
    with pytest.raises(ValueError, match="at least one tensor"):
        tf.global_norm([None])


def test_a_tensor_is_clipped_by_its_norm_or_row_by_row() -> None:
    rows = tf.constant([[3.0, 4.0], [0.3, 0.4]])
    with tf.Session() as session:
        whole, each = session.run([tf.clip_by_norm(rows, 1.0), tf.clip_by_norm(rows, 1.0, axes=1)])
    np.testing.assert_allclose(np.linalg.norm(whole), 1.0, rtol=1e-6)
    np.testing.assert_allclose(each, [[0.6, 0.8], [0.3, 0.4]], rtol=1e-6)


def test_a_graph_has_one_global_step() -> None:
    assert tf.train.get_global_step() is None
    step = tf.train.get_or_create_global_step()
    assert step.name == "global_step:0"
    assert tf.train.get_or_create_global_step() is step
    with pytest.raises(ValueError, match="the graph has a global step"):
        tf.train.create_global_step()
    with tf.Graph().as_default() as graph:
        named = tf.Variable(0, name="global_step")
        assert tf.train.get_global_step(graph) is named
    with tf.Graph().as_default() as graph:
        tf.Variable([0.0], name="global_step")
        with pytest.raises(TypeError, match="an integer scalar as global step"):
            tf.train.get_global_step(graph)


def test_a_norm_is_limited_by_what_broadcasts_to_the_tensor_only() -> None:
    rows = tf.constant(np.ones((2, 3, 1), np.float32))
    assert tf.clip_by_norm(rows, np.ones((3, 1), np.float32)).shape == (2, 3, 1)
    with pytest.raises(ValueError, match=r"clip_norm of shape \(2,\) does not broadcast"):
        tf.clip_by_norm(rows, tf.constant([1.0, 2.0]))


def test_the_noise_of_a_decay_has_a_variance_that_decays() -> None:
    tf.set_random_seed(7)
    step = tf.placeholder(tf.int32, ())
    rate = tf.train.noisy_linear_cosine_decay(2.0, step, 100, 0.25, 0.5)
    plain = tf.train.linear_cosine_decay(2.0, step, 100)
    with tf.Session() as session:
        for at, std in ((0, 0.5), (15, 0.25)):
            cosine = (1 + np.cos(np.pi * at / 100)) / 2
            run = session.make_callable([rate, plain], [step])
            rates, expected = np.array([run(at) for _ in range(1000)]).T
            noise = (rates - expected) / (2 * cosine)
            assert abs(noise.mean()) < 0.1 * std
            np.testing.assert_allclose(noise.std(), std, rtol=0.1)

"""Placeholders without a shape, which compute with whatever is fed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.tensorflow_values.program import Steps, gives


@gives(scalar=6.0, vector=[2.0, 4.0], matrix=[[2.0], [4.0]], broadcast=[[3.0, 6.0], [4.0, 8.0]])
def a_placeholder_without_a_shape_takes_any(tf: Any) -> Mapping[str, Any]:
    x, y = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    return {
        "scalar": Steps((x * 2.0, {x: 3.0})),
        "vector": Steps((x * 2.0, {x: [1.0, 2.0]})),
        "matrix": Steps((x * 2.0, {x: [[1.0], [2.0]]})),
        "broadcast": Steps((x * y, {x: [1.0, 2.0], y: [[3.0], [4.0]]})),
    }


@gives(v=[0.5, 1.0], w=[0.25, 0.5])
def a_learning_rate_without_a_shape_is_fed(tf: Any) -> Mapping[str, Any]:
    v, rate = tf.Variable([1.0, 2.0]), tf.placeholder(tf.float32)
    step = tf.train.GradientDescentOptimizer(rate).minimize(v * v)
    return {
        "v": Steps((step, {rate: 0.25}), v),
        "w": Steps((step, {rate: 0.25}), (step, {rate: 0.25}), v),
    }


@gives(by_v=[[14.0], [32.0]], by_x=[[5.0, 6.0]], loss=[[17.0]], fed=[[0.5], [1.0]])
def gradients_flow_through_what_has_no_shape(tf: Any) -> Mapping[str, Any]:
    x, keep = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    v = tf.Variable([[5.0], [6.0]])
    kept = x / keep
    product = kept @ v
    loss = tf.identity(product)
    by_v, by_x = tf.gradients(loss, [v, x])
    feeds = {x: [[1.0, 2.0]], keep: 1.0}
    rows = {x: [[1.0, 10.0], [13.0, 22.0]], keep: 1.0}
    return {
        "by_v": Steps((by_v, rows)),
        "by_x": Steps((by_x, feeds)),
        "loss": Steps((loss, feeds)),
        "fed": Steps((by_v, {**feeds, kept: [[0.5, 1.0]]})),
    }


@gives(y=[2.0, 4.0], seeded=[6.0, 40.0], second=[6.0, 12.0])
def derivatives_have_the_shape_that_is_fed(tf: Any) -> Mapping[str, Any]:
    x, seed = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    (y,) = tf.gradients(x * x, x)
    (seeded,) = tf.gradients(x * x, x, seed)
    (first,) = tf.gradients(x * x * x, x)
    (second,) = tf.gradients(first, x)
    feeds = {x: [1.0, 2.0]}
    return {
        "y": Steps((y, feeds)),
        "seeded": Steps((seeded, {**feeds, seed: [3.0, 10.0]})),
        "second": Steps((second, feeds)),
    }


@gives(sum=[5.0, 7.0])
def a_declared_shape_holds_for_what_follows(tf: Any) -> Mapping[str, Any]:
    x = tf.placeholder(tf.float32)
    x.set_shape([None])
    assert len(x.shape) == 1
    return {"sum": Steps((x + 3.0, {x: [2.0, 4.0]}))}


@gives(scaled=[1.5, 2.0], clipped=[1.5, 2.0], within=[1.5, 2.0], by_w=[[8.0, 8.0]])
def gradients_of_unknown_rank_are_applied(tf: Any) -> Mapping[str, Any]:
    x, limit = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    v, w = tf.Variable([3.0, 4.0]), tf.Variable([[1.0, 1.0]])
    (slope,) = tf.gradients(v * v / 2.0, v)
    descent = tf.train.GradientDescentOptimizer(1.0)
    clipped, within = tf.clip_by_norm(slope, limit), tf.clip_by_global_norm([slope], limit)[0][0]
    scaled, clipped, within = (
        descent.apply_gradients([(g, v)]) for g in (slope * x, clipped, within)
    )
    known = tf.ensure_shape(x * w, [None, 2])
    return {
        "scaled": Steps((scaled, {x: 0.5}), v),
        "clipped": Steps((clipped, {limit: 2.5}), v),
        "within": Steps((within, {limit: 2.5}), v),
        "by_w": Steps((tf.gradients(known * known, w)[0], {x: [[2.0]]})),
    }


PROGRAMS = [
    a_placeholder_without_a_shape_takes_any,
    a_learning_rate_without_a_shape_is_fed,
    gradients_flow_through_what_has_no_shape,
    derivatives_have_the_shape_that_is_fed,
    a_declared_shape_holds_for_what_follows,
    gradients_of_unknown_rank_are_applied,
]

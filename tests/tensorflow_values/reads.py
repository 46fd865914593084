"""What a use of a variable reads inside `control_dependencies`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.tensorflow_values.program import gives


@gives(product=4.0, identity=2.0, read=2.0, value=2.0, outside=1.0)
def a_use_reads_after_the_control_inputs(tf: Any) -> Mapping[str, Any]:
    v = tf.Variable(1.0)
    with tf.control_dependencies([tf.assign_add(v, 1.0)]):
        product, identity = v * v, tf.identity(v)
        read, value = v.read_value() + 0, v.value() + 0
    return {
        "product": product,
        "identity": identity,
        "read": read,
        "value": value,
        "outside": v * 1.0,
    }


@gives(after=[4.0, 8.0])
def a_loss_after_a_step_is_that_of_the_new_weights(tf: Any) -> Mapping[str, Any]:
    w = tf.Variable([1.0, 2.0])
    step = tf.train.GradientDescentOptimizer(-0.5).minimize(w * w)
    with tf.control_dependencies([step]):
        after = w * 2.0 + w * 0.0
    return {"after": after}


@gives(y=9.0)
def a_moving_mean_is_the_new_one_after_its_update(tf: Any) -> Mapping[str, Any]:
    mean, x = tf.Variable(0.0), tf.constant(10.0)
    with tf.control_dependencies([tf.assign(mean, 0.9 * mean + 0.1 * x)]):
        y = x - mean
    return {"y": y}


@gives(inner=3.0, outer=2.0, cleared=1.0, unrelated=1.0)
def blocks_add_up_and_none_clears_them(tf: Any) -> Mapping[str, Any]:
    v, w = tf.Variable(1.0), tf.Variable(1.0)
    with tf.control_dependencies([tf.assign_add(v, 1.0)]):
        outer = v + 0.0
        with tf.control_dependencies([tf.assign_add(v, 1.0)]):
            inner = v + 0.0
        with tf.control_dependencies(None):
            cleared = v + 0.0
        unrelated = w + 0.0
    return {"inner": inner, "outer": outer, "cleared": cleared, "unrelated": unrelated}


@gives(slope=10.0, both=11.0)
def gradients_count_every_read(tf: Any) -> Mapping[str, Any]:
    v = tf.Variable(4.0)
    early = v * 1.0
    with tf.control_dependencies([tf.assign_add(v, 1.0)]):
        late = v * v
        slope = tf.gradients(late, v)[0]
        both = tf.gradients(late + early, v)[0]
    return {"slope": slope, "both": both}


@gives(counted=[3.0, 5.0])
def updates_in_a_chain_read_what_the_one_before_has_written(tf: Any) -> Mapping[str, Any]:
    v = tf.Variable([1.0, 2.0])
    with tf.control_dependencies([tf.assign(v, [1.0, 2.0])]):
        doubled = tf.assign(v, v * 2.0)
    with tf.control_dependencies([doubled]):
        added = tf.assign(v, v + 1.0)
    with tf.control_dependencies([added]):
        counted = v + 0.0
    return {"counted": counted}


PROGRAMS = [
    a_use_reads_after_the_control_inputs,
    a_loss_after_a_step_is_that_of_the_new_weights,
    a_moving_mean_is_the_new_one_after_its_update,
    blocks_add_up_and_none_clears_them,
    gradients_count_every_read,
    updates_in_a_chain_read_what_the_one_before_has_written,
]

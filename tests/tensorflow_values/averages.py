"""Moving averages: their values and what they begin with.

TensorFlow's reference variables cannot initialize an average together with its variable. An average
begins with the present value of its variable if that has one, so each program has one fetch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tests.tensorflow_values.program import Steps, gives


@gives(average=[1.38, 2.38])
def of_a_variable(tf: Any) -> Mapping[str, Any]:
    v = tf.Variable([1.0, 2.0])
    averages = tf.train.ExponentialMovingAverage(0.9)
    move, change = averages.apply([v]), v.assign([3.0, 4.0])
    return {"average": Steps(change, move, move, averages.average(v))}


@gives(average=3.892308)
def with_a_number_of_updates(tf: Any) -> Mapping[str, Any]:
    v, n = tf.Variable(1.0), tf.Variable(3, trainable=False)
    averages = tf.train.ExponentialMovingAverage(0.9, num_updates=n)
    move, change, more = averages.apply([v]), v.assign(5.0), n.assign(1000)
    return {"average": Steps(change, move, more, move, averages.average(v))}


@gives(plain=[0.2, 0.4], corrected=[4.105263, 4.0])
def of_a_tensor(tf: Any) -> Mapping[str, Any]:
    x = tf.placeholder(tf.float32, [2])
    y = x * 2.0
    plain = tf.train.ExponentialMovingAverage(0.9)
    corrected = tf.train.ExponentialMovingAverage(0.9, zero_debias=True, name="corrected")
    first, second = plain.apply([y]), corrected.apply([y])
    return {
        "plain": Steps((first, {x: [1.0, 2.0]}), plain.average(y)),
        "corrected": Steps(
            (second, {x: [1.0, 2.0]}), (second, {x: [3.0, 2.0]}), corrected.average(y)
        ),
    }


@gives(average=0.865)
def after_a_training_step(tf: Any) -> Mapping[str, Any]:
    v, slope = tf.Variable(1.0), tf.placeholder(tf.float32, [])
    averages = tf.train.ExponentialMovingAverage(0.5)
    train = tf.train.GradientDescentOptimizer(0.1).apply_gradients([(slope, v)])
    with tf.control_dependencies([train]):
        step = averages.apply([v])
    return {"average": Steps((step, {slope: 1.0}), (step, {slope: 1.2}), averages.average(v))}


PROGRAMS = [
    of_a_tensor,
    *(
        dataclasses.replace(one, needs_resources=True)
        for one in (of_a_variable, with_a_number_of_updates, after_a_training_step)
    ),
]

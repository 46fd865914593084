"""Texts of numbers, and default values of features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.tensorflow_values.program import gives


@gives(
    numbers=[15, 15, -16, 8, 1.5, 31, 15, 15, 1e5, np.inf, 2.9514790517935283e20, np.inf],
    refused=[1, 1, 1, 1],
)
def a_float_may_be_hexadecimal(tf: Any) -> Mapping[str, Any]:
    texts = ["0xF", "0xf", "-0x10", "0x1p3", "0x1.8", "0X1F", "+0xF", " 0xF ", "1e5", "inf"]
    texts += ["0xFFFFFFFFFFFFFFFFF", "0x1p2000"]
    refused = []
    for text, dtype in (
        ("0x", tf.float32),
        ("0b1", tf.float32),
        ("0xF", tf.int32),
        ("0x_F", tf.float32),
    ):
        number = tf.string_to_number(tf.constant(text), out_type=dtype)
        try:
            with tf.Session() as session:
                session.run(number)
            refused.append(0)
        except tf.errors.InvalidArgumentError:
            refused.append(1)
    return {
        "numbers": tf.string_to_number(tf.constant(texts)),
        "refused": tf.constant(refused),
    }


@gives(flat=[[[[3], [-3]]]] * 2, transposed=[[[1, 2], [3, 4], [5, 6]]] * 2)
def a_default_value_of_a_feature_takes_its_shape(tf: Any) -> Mapping[str, Any]:
    features = {
        "flat": tf.FixedLenFeature((1, 2, 1), tf.float32, default_value=[3.0, -3.0]),
        "transposed": tf.FixedLenFeature((3, 2), tf.float32, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
    }
    parsed = tf.parse_example(tf.constant(["", ""]), features)
    return {name: parsed[name] for name in features}


PROGRAMS = [a_float_may_be_hexadecimal, a_default_value_of_a_feature_takes_its_shape]

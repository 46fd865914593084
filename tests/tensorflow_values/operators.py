"""Operators of tensors and variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.tensorflow_values.program import gives


@gives(value=[2.0, 0.0, 3.0], slope=[-1.0, 0.0, 1.0], by_variable=[-1.0, 0.0], integers=[1, 2])
def the_absolute_value_has_the_derivative_zero_at_zero(tf: Any) -> Mapping[str, Any]:
    x, v = tf.constant([-2.0, 0.0, 3.0]), tf.Variable([-2.0, 0.0])
    return {
        "value": abs(x),
        "slope": tf.gradients(abs(x), x)[0],
        "by_variable": tf.gradients(abs(v), v)[0],
        "integers": abs(tf.constant([-1, 2])),
    }


PROGRAMS = [the_absolute_value_has_the_derivative_zero_at_zero]

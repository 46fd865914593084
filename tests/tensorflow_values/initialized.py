"""What checks whether variables are initialized."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.tensorflow_values.program import gives


@gives(several=[0, 2], single=1, nothing=1.0, operation=1.0)
def the_check_of_variables_is_a_tensor_of_their_ranks(tf: Any) -> Mapping[str, Any]:
    with tf.Graph().as_default():
        nothing = tf.assert_variables_initialized()
    v, w, u = tf.Variable(1.0), tf.Variable([[1.0]]), tf.Variable([1.0, 2.0])
    single = tf.assert_variables_initialized([u])
    with tf.control_dependencies([single.op]):
        after = tf.constant(1.0)
    return {
        "several": tf.assert_variables_initialized([v, w]),
        "single": single,
        "nothing": tf.constant(float(nothing is None)),
        "operation": after,
    }


PROGRAMS = [the_check_of_variables_is_a_tensor_of_their_ranks]

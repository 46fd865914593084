"""Sparse tensors, assertions that hold, and values that a step may feed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.tensorflow_values.program import Steps, gives

_INDICES = [[0, 1], [1, 0], [1, 3]]
_FED = (_INDICES, np.float32([1.0, 2.0, 3.0]), [2, 4])
_TABLE = np.arange(12, dtype=np.float32).reshape(6, 2)


def _placeholder(tf: Any, dtype: Any = None) -> Any:
    return tf.sparse_placeholder(dtype or tf.float32, [None, 4])


@gives(
    dense=[[0, 1, 0, 0], [2, 0, 0, 3]],
    filled=[[-1, 1, -1, -1], [2, -1, -1, 3]],
    product=[[2, 3], [18, 23]],
    adjoint=[[0, 2], [1, 0], [0, 0], [0, 3]],
    again=[[0, 1, 0, 0], [2, 0, 0, 3]],
)
def a_sparse_matrix_that_is_fed(tf: Any) -> Mapping[str, Any]:
    sparse = _placeholder(tf)
    dense = np.arange(8, dtype=np.float32).reshape(4, 2)
    again = tf.deserialize_many_sparse(tf.serialize_many_sparse(sparse), tf.float32, rank=1)

    def fed(fetch: Any) -> Steps:
        return Steps((fetch, {sparse: _FED}))

    return {
        "dense": fed(tf.sparse_tensor_to_dense(sparse)),
        "filled": fed(tf.sparse_tensor_to_dense(sparse, default_value=-1.0)),
        "product": fed(tf.sparse_tensor_dense_matmul(sparse, dense)),
        "adjoint": fed(
            tf.sparse_tensor_dense_matmul(sparse, np.eye(2, dtype=np.float32), adjoint_a=True)
        ),
        "again": fed(tf.sparse_tensor_to_dense(again)),
    }


@gives(vector=[0, 5, 0, 7], matrix=[[0, 4], [4, 0]])
def values_at_positions(tf: Any) -> Mapping[str, Any]:
    return {
        "vector": tf.sparse_to_dense([1, 3], [4], [5.0, 7.0]),
        "matrix": tf.sparse_to_dense([[0, 1], [1, 0]], [2, 2], 4.0),
    }


@gives(
    mean=[[2, 3], [7, 8]],
    sum=[[2, 3], [14, 16]],
    sqrtn=[[2, 3], [9.899495, 11.313708]],
    weighted=[[2, 3], [7.2, 8.2]],
    roots=[[2, 3], [9.984903, 11.371695]],
    slope=[[0, 0], [1, 1], [0, 0], [0.4, 0.4], [0.6, 0.6], [0, 0]],
)
def rows_that_are_combined(tf: Any) -> Mapping[str, Any]:
    table = tf.Variable(_TABLE)
    ids, weights = _placeholder(tf, tf.int64), _placeholder(tf)
    numbers = {ids: (_INDICES, [1, 3, 4], [2, 4])}
    factors = {weights: (_INDICES, np.float32([2.0, 2.0, 3.0]), [2, 4])}

    def combined(combiner: str) -> Steps:
        rows = tf.nn.embedding_lookup_sparse(table, ids, None, combiner=combiner)
        return Steps((rows, numbers))

    def weighted(combiner: str) -> Any:
        return tf.nn.embedding_lookup_sparse(table, ids, weights, combiner=combiner)

    slope = tf.convert_to_tensor(tf.gradients(weighted("mean"), table)[0])
    return {
        "mean": combined("mean"),
        "sum": combined("sum"),
        "sqrtn": combined("sqrtn"),
        "weighted": Steps((weighted("mean"), numbers | factors)),
        "roots": Steps((weighted("sqrtn"), numbers | factors)),
        "slope": Steps((slope, numbers | factors)),
    }


@gives(default=[1, 2], fed=[3, 4, 5], twice=[2, 4])
def a_default_unless_fed(tf: Any) -> Mapping[str, Any]:
    x = tf.placeholder_with_default(tf.constant([1.0, 2.0]), [None])
    y = tf.placeholder_with_default(tf.constant([1.0, 2.0]), [2])
    return {"default": x, "fed": Steps((x * 1.0, {x: [3, 4, 5]})), "twice": y * 2.0}


@gives(checked=[1, 2], printed=3)
def assertions_that_hold(tf: Any) -> Mapping[str, Any]:
    x = tf.constant([1.0, 2.0])
    checks = [
        tf.assert_equal(x, [1.0, 2.0]),
        tf.assert_less(x, 3.0),
        tf.assert_less_equal(x, 2.0),
        tf.assert_greater(x, 0.0),
        tf.assert_greater_equal(x, 1.0),
        tf.assert_none_equal(x, 5.0),
        tf.assert_positive(x),
        tf.assert_negative(-x),
        tf.assert_non_negative(x),
        tf.assert_non_positive(-x),
        tf.assert_near(x, [1.0, 2.0 + 1e-7]),
        tf.Assert(tf.constant(True), ["no", x]),
    ]
    tf.assert_rank(x, 1)
    tf.assert_rank_at_least(x, 1)
    tf.assert_rank_in(x, [0, 1])
    tf.assert_type(x, tf.float32)
    tf.assert_integer(tf.constant(1))
    with tf.control_dependencies(checks):
        checked = tf.identity(x)
    return {"checked": checked, "printed": tf.Print(tf.reduce_sum(x), [x], "x is", first_n=1)}


PROGRAMS = [
    a_default_unless_fed,
    a_sparse_matrix_that_is_fed,
    assertions_that_hold,
    rows_that_are_combined,
    values_at_positions,
]

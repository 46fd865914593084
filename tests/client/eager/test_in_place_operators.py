"""`variable += value` and its like: an error for eager variables, a tensor in graph code."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import jflow as tf

METHODS = {operator.iadd: "assign_add", operator.isub: "assign_sub"}
OTHERS = {
    operator.imul: "*",
    operator.itruediv: "/",
    operator.ifloordiv: "//",
    operator.imod: "%",
    operator.ipow: "**",
    operator.imatmul: "@",
    operator.iand: "&",
    operator.ior: "|",
    operator.ixor: "^",
    operator.ilshift: "<<",
    operator.irshift: ">>",
}


@pytest.fixture
def connection() -> Iterator[tf.Connection]:
    with tf.connect() as connection:
        yield connection


@pytest.mark.usefixtures("connection")
@pytest.mark.parametrize("update", [*METHODS, *OTHERS])
def test_an_in_place_operator_of_an_eager_variable_is_refused_with_the_method(
    update: Callable[[Any, Any], Any],
) -> None:
    v = tf.Variable(np.int32([[6, 7]]))
    method = METHODS.get(update) or rf"assign\(v {OTHERS[update]} value\)".translate(
        {ord(c): f"\\{c}" for c in "*|^"}
    )
    with pytest.raises(RuntimeError, match=rf"does not change .* write `v\.{method}"):
        update(v, np.int32([[1], [2]]))
    with pytest.raises(RuntimeError, match=r"does not change"):
        tf.function(lambda x: update(v, x))(np.int32([[1], [2]]))
    np.testing.assert_array_equal(v, [[6, 7]])


@pytest.mark.usefixtures("fresh_graph")
def test_an_in_place_operator_in_a_graph_makes_a_tensor() -> None:
    v = w = tf.Variable(2.0)
    w += 1
    w *= 3
    assert isinstance(w, tf.Tensor)
    with tf.Session() as session:
        session.run(v.initializer)
        assert session.run([w, v]) == [9.0, 2.0]

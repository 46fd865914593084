"""Shapes as in TensorFlow 1: tuples with methods, whose sizes have a value."""

from __future__ import annotations

import copy
import operator
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.base.values import TensorSpec, unknown_dim
from jflow.compiler.graph import Tensor


def open_(*shape: int | None) -> Tensor:
    return tf.placeholder(tf.float32, shape)


def test_the_shape_of_a_tensor_has_the_methods_of_tensorflow() -> None:
    x, scalar, unknown = open_(None, 784), tf.constant(1.0), tf.placeholder(tf.float32)
    shape = x.get_shape()
    assert shape == x.shape
    assert shape.as_list() == [None, 784]
    assert (shape.ndims, shape.rank, len(shape)) == (2, 2, 2)
    assert [size.value for size in shape] == [size.value for size in shape.dims] == [None, 784]
    assert not shape.is_fully_defined()
    assert shape.num_elements() is None
    assert shape[1:].is_fully_defined()
    assert shape[1:].num_elements() == 784
    assert scalar.shape.num_elements() == 1
    assert scalar.shape.is_fully_defined()
    assert unknown.shape == tf.TensorShape(None)
    assert (unknown.shape.ndims, unknown.shape.dims, bool(unknown.shape)) == (None, None, False)


def test_a_shape_is_a_tuple_and_equal_to_a_list() -> None:
    v = tf.Variable(np.zeros((2, 1), np.float32))
    assert isinstance(v.shape, tuple)
    assert v.shape == [2, 1] == v.shape
    assert v.shape == (2, 1) == v.shape
    assert v.shape not in ([2, 2], (2,), [2, 1, 1], [None, 1], 2, None, tf.TensorShape(None))
    assert hash(v.shape) == hash((2, 1))
    assert {v.shape: 3}[2, 1] == 3
    rows, columns = v.shape
    assert (rows, columns, v.shape[-1], v.shape[:1]) == (2, 1, 1, (2,))
    assert type(v.shape[:1]) is tf.TensorShape
    assert open_(None, 3).shape == [None, 3]
    assert open_(None, 3).shape != open_(None, 3).shape
    assert tf.TensorShape([None, 3]) == open_(None, 3).shape
    for other in ([3], (3,), tf.TensorShape([3])):
        assert operator.add(v.shape, other) == [2, 1, 3]
        assert operator.add(other, v.shape) == [3, 2, 1]
    assert f"{v.shape} {open_(None, 3).shape}" == "(2, 1) (None, 3)"


def test_an_unknown_size_is_the_symbol_that_jax_computes_with() -> None:
    x = open_(None, 3)
    (symbol, _) = x.aval.shape
    size = x.shape[0]
    assert size == symbol == size
    assert hash(size) == hash(symbol)
    assert size != open_(None).shape[0]
    assert (size + 1, 2 * size, size // 2) == (symbol + 1, 2 * symbol, symbol // 2)
    assert jax.export.is_symbolic_dim(size)
    rows = tf.numpy.ones((size, 2)) * tf.numpy.arange(x.shape[0])[:, None]
    inner = tf.function(lambda a: a * jnp.ones((size, x.shape[1])) + jnp.zeros(x.shape))(x)
    with tf.Session() as session:
        assert session.run(rows, {x: np.ones((2, 3))}).tolist() == [[0, 0], [1, 1]]
        assert session.run(inner, {x: np.ones((2, 3))}).tolist() == [[1] * 3] * 2


def test_jax_takes_shapes() -> None:
    shape = tf.Variable(np.zeros((2, 3), np.float32)).shape
    row = jnp.arange(6.0)
    for value in (
        jnp.zeros(shape),
        jnp.reshape(row, shape),
        row.reshape(*shape),
        jnp.broadcast_to(1.0, shape),
        jax.random.normal(jax.random.key(0), shape),
        jax.lax.full(shape, 1.0),
        jax.jit(jnp.zeros, static_argnums=0)(shape),
        jax.jit(lambda x: x.reshape(shape) + jnp.ones((shape[0], 1)))(row),
        jax.vmap(lambda _: jnp.ones(shape[1:]))(jnp.arange(2)),
        np.zeros(shape),
        tf.Session().run(tf.numpy.reshape(tf.constant(np.arange(6.0)), shape)),
    ):
        assert value.shape == (2, 3)
    assert jax.ShapeDtypeStruct(shape, jnp.float32).shape == (2, 3)
    assert jax.tree.leaves({"a": shape}) == [2, 3]
    assert jax.tree.map(lambda size: size + 1, shape) == (3, 4)
    assert np.prod(shape) == 6
    exported = jax.export.export(jax.jit(lambda x: x.reshape(shape)))(row)
    assert exported.out_avals[0].shape == (2, 3)


def test_what_takes_a_shape_takes_one_of_a_tensor() -> None:
    x, unknown = open_(None, 4), tf.TensorShape([None, 2])
    first, second = tf.placeholder(tf.float32, unknown), tf.placeholder(tf.float32, unknown)
    assert first.shape == [None, 2]
    assert first.shape != second.shape
    assert tf.placeholder(tf.float32, tf.TensorShape(None)).shape.ndims is None
    assert tf.placeholder(tf.float32, [tf.Dimension(None), tf.Dimension(3)]).shape == [None, 3]
    assert tf.get_variable("v", x.shape[1:]).shape == [4]
    assert tf.get_variable("w", [x.shape[1], tf.Dimension(2)]).shape == [4, 2]
    assert tf.constant(1.0, shape=x.shape[1:]).shape == [4]
    assert tf.ensure_shape(first, tf.TensorShape([2, None])).shape == [2, 2]
    undeclared = tf.placeholder(tf.float32)
    undeclared.set_shape(unknown)
    assert undeclared.shape == [None, 2]
    queue = tf.FIFOQueue(3, [tf.float32, tf.int32], [x.shape[1:], ()])
    assert queue.shapes == [[4], []]
    assert type(queue.shapes[0]) is tf.TensorShape
    assert queue.dequeue()[0].shape == [4]
    assert tf.FIFOQueue(3, tf.int32).shapes == [tf.TensorShape(None)]
    assert TensorSpec(unknown, np.dtype(np.float32)) == TensorSpec((None, 2), np.dtype(np.float32))


def test_all_kinds_of_variables_have_such_shapes() -> None:
    parts = tf.get_variable("p", [4, 2], partitioner=tf.fixed_size_partitioner(2))
    rows = tf.IndexedSlices(tf.constant([[1.0, 2.0]]), tf.constant([0]), (4, 2))
    varying = tf.Variable(np.zeros((4, 2)), validate_shape=False)
    with tf.connect():
        eager = tf.Variable(jnp.zeros((4, 2)))
    for shape in (parts.get_shape(), rows.get_shape(), eager.get_shape(), eager.shape):
        assert shape == [4, 2]
        assert shape.as_list() == [4, 2]
    assert varying.get_shape().as_list() == [None, None]


def test_shapes_are_merged_joined_and_compared() -> None:
    shape, known, unknown = tf.TensorShape([None, 3]), tf.TensorShape([2, 3]), tf.TensorShape(None)
    assert shape.merge_with([2, None]) == known
    assert unknown.merge_with(known) == known.merge_with(None) == known
    assert shape.concatenate([4]) == [None, 3, 4]
    assert unknown.concatenate([2]) == known.concatenate(None) == unknown
    assert known.with_rank(2) is known.with_rank_at_least(1) is known.with_rank_at_most(3)
    assert unknown.with_rank(2) == [None, None]
    assert known.most_specific_compatible_shape([2, 4]) == [2, None]
    assert shape.is_compatible_with([7, 3])
    assert unknown.is_compatible_with([7])
    assert not shape.is_compatible_with([3])
    shape.assert_is_compatible_with(known)
    shape.assert_same_rank(known)
    for refused in (
        lambda: shape.merge_with([2, 4]),
        lambda: known.assert_is_compatible_with([2]),
        lambda: known.with_rank(3),
        lambda: known.with_rank_at_least(3),
        lambda: known.with_rank_at_most(1),
        lambda: known.assert_has_rank(1),
        lambda: known.assert_same_rank([1]),
        shape.assert_is_fully_defined,
        unknown.as_list,
        lambda: len(unknown),
        lambda: list(unknown),
        lambda: unknown[0],
        lambda: tf.TensorShape([-1]),
        lambda: tf.Dimension(-1),
        lambda: tf.Dimension(2).merge_with(3),
        lambda: tf.Dimension(2).assert_is_compatible_with(3),
    ):
        with pytest.raises(ValueError, match=r"[Ss]hape|Dimension"):
            refused()
    for wrong in ([2.5], "ab", [[1]], object()):
        with pytest.raises(TypeError, match="expected a size"):
            tf.TensorShape(wrong)


def test_a_dimension_has_a_value() -> None:
    assert tf.Dimension(3) == 3
    assert tf.Dimension(3).value == tf.Dimension(tf.Dimension(3)).value == 3
    assert tf.Dimension(None).value is None
    assert tf.Dimension(None).merge_with(2).value == 2
    assert tf.Dimension(2).is_compatible_with(None)
    assert isinstance(open_(None, 3).shape[0], tf.Dimension)
    assert isinstance(open_(None, 3).shape[1], tf.Dimension)
    assert tf.TensorShape(3) == tf.TensorShape([tf.Dimension(3)]) == [3]


@pytest.mark.parametrize("shape", [[2, 3], [None, 3], None])
def test_a_shape_is_copied_and_pickled(shape: Any) -> None:
    found = tf.TensorShape(shape)
    assert copy.deepcopy(found) == copy.copy(found) == found
    assert pickle.loads(pickle.dumps(found)) == found
    assert pickle.loads(pickle.dumps(tf.TensorShape([2])[0])) == 2
    n = unknown_dim()
    assert copy.deepcopy(tf.TensorShape([n])) == (n,)

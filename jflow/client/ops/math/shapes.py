"""Shapes of tensors, and tensors of given shapes, under TensorFlow's names."""

# Functions and arguments have TensorFlow's names, also where Python has them.
# ruff: noqa: A001, A002

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jflow.base.values import as_dtype, is_known, is_symbol
from jflow.client.ops.host_calls import stays_on_host
from jflow.client.ops.lift import lift, operation, target_graph
from jflow.client.ops.math.sizes import size_in_step, size_of, sizes_of
from jflow.client.ops.strings import host_shape
from jflow.compiler.graph import Symbolic
from jflow.compiler.graph.primitives import with_shape

_shape = operation(lambda x, dtype: jnp.asarray(jnp.shape(x), dtype), "Shape")
_size = operation(lambda x, dtype: jnp.asarray(jnp.size(x), dtype), "Size")
_product = operation(lambda sizes: jnp.prod(sizes, dtype=sizes.dtype), "Size")
_rank = operation(lambda x: jnp.asarray(jnp.ndim(x), jnp.int32), "Rank")
_full = lift(jnp.full)
_zeros_like = operation(jnp.zeros_like, "zeros_like")
_ones_like = operation(jnp.ones_like, "ones_like")
_reshape = operation(jnp.reshape, "Reshape")
_quotient = operation(
    lambda x, sizes: jnp.asarray(jnp.size(x) // math.prod(sizes), jnp.int32), "size"
)
_broadcast_to = operation(jnp.broadcast_to, "BroadcastTo")
_arange = lift(lambda start, n, delta, dtype: (start + delta * jnp.arange(n)).astype(dtype))
_linspace = lift(jnp.linspace)
_eye = lift(lambda n, m, batch, dtype: jnp.broadcast_to(jnp.eye(n, m, dtype=dtype), (*batch, n, m)))


def shape(input: Any, name: str | None = None, out_type: Any = jnp.int32) -> Any:
    """Returns the shape of a tensor as a tensor, i32[rank].

    `zeros`, `reshape` and others that take a shape take it, also in part: `[shape(x)[0], 10]`.
    """
    dtype = as_dtype(out_type or jnp.int32)
    if stays_on_host(input):
        return host_shape(input, dtype, name or "Shape")
    return _shape(input, dtype=dtype, name=name)


def shape_n(input: Sequence[Any], out_type: Any = jnp.int32, name: str | None = None) -> list[Any]:
    """Returns the shape of each tensor of a list; see `shape`."""
    return [shape(one, name, out_type) for one in input]


def size(input: Any, name: str | None = None, out_type: Any = jnp.int32) -> Any:
    """Returns the number of elements of a tensor as a tensor, i32[]."""
    if stays_on_host(input):
        sizes = shape(input, None, out_type)
        is_array = isinstance(sizes, np.ndarray)  # in a function of a dataset
        return np.prod(sizes, dtype=sizes.dtype) if is_array else _product(sizes, name=name)
    return _size(input, dtype=as_dtype(out_type or jnp.int32), name=name)


def rank(input: Any, name: str | None = None) -> Any:
    """Returns the number of axes of a tensor as a tensor, i32[]."""
    if stays_on_host(input):
        sizes = shape(input)
        is_array = isinstance(sizes, np.ndarray)
        return np.int32(sizes.size) if is_array else size(sizes, name=name or "Rank")
    return _rank(input, name=name)


def zeros(shape: Any, dtype: Any = jnp.float32, name: str | None = None) -> Any:
    """Returns a tensor of zeros.

    Args:
      shape: a tuple or list of sizes, a `TensorShape`, or an integer tensor. A size is an int, a
        size of another tensor, or an integer tensor, whose value only a step may know.
      dtype: dtype of the elements.
      name: name of the operation.

    Raises:
      ValueError: if a size is None, or the number of sizes is unknown.
      InvalidArgumentError: in the step, if a size is negative.
    """
    return _full(sizes_of(shape), 0, dtype=as_dtype(dtype), name=name or "zeros")


def ones(shape: Any, dtype: Any = jnp.float32, name: str | None = None) -> Any:
    """Returns a tensor of ones; see `zeros`."""
    return _full(sizes_of(shape), 1, dtype=as_dtype(dtype), name=name or "ones")


def fill(dims: Any, value: Any, name: str | None = None) -> Any:
    """Returns a tensor whose elements are all a value, T[]; see `zeros` for its shape."""
    return _full(sizes_of(dims), value, name=name or "Fill")


def zeros_like(
    tensor: Any, dtype: Any = None, name: str | None = None, optimize: bool = True
) -> Any:
    """Returns zeros of the shape and dtype of a tensor, or of another dtype."""
    return _zeros_like(tensor, dtype=None if dtype is None else as_dtype(dtype), name=name)


def ones_like(
    tensor: Any, dtype: Any = None, name: str | None = None, optimize: bool = True
) -> Any:
    """Returns ones of the shape and dtype of a tensor, or of another dtype."""
    return _ones_like(tensor, dtype=None if dtype is None else as_dtype(dtype), name=name)


def reshape(tensor: Any, shape: Any, name: str | None = None) -> Any:
    """Returns the elements of a tensor, in their order, in another shape.

    Args:
      tensor: T[*old].
      shape: the shape, as for `zeros`; one size can be -1, which is what the others leave.
      name: name of the operation.

    Raises:
      ValueError: if the elements do not fit.
      InvalidArgumentError: in the step, if they do not.
    """
    sizes = sizes_of(shape)
    reshape_ = _reshape if target_graph(tensor) is None else _checked_reshape
    try:
        return reshape_(tensor, shape=sizes, name=name)
    except jax.errors.InconclusiveDimensionOperation:
        if -1 not in sizes or target_graph(tensor) is None:
            raise
    # JAX cannot divide by a size that it does not know; the step can.
    others = [size for size in sizes if size != -1]
    left = size_in_step(_quotient(tensor, sizes=others))
    sizes = tuple(left if size == -1 else size for size in sizes)
    return _reshape(tensor, shape=sizes, name=name)


def _reshape_of_size(x: Any, shape: Sequence[Any]) -> Any:
    """Reshapes an array; where one unknown size of it follows from the shape, the step checks it.

    JAX takes an unknown size for one that fits, and a program that it does not fit fails in XLA,
    which names neither the operation nor the sizes.
    """
    known = [size for size in x.shape if is_known(size)]
    is_one = len(known) == len(x.shape) - 1 and all(map(is_symbol, {*x.shape} - {*known}))
    if is_one and -1 not in shape:
        fitting, remainder = _divided(shape, known)
        if remainder == 0:
            x = with_shape(x, [size if is_known(size) else fitting for size in x.shape])
    return jnp.reshape(x, shape)


def _divided(sizes: Sequence[Any], divisors: Sequence[int]) -> tuple[Any, int]:
    """Returns the quotient of two products and its remainder, which is -1 if it is unknown."""
    divisor, known = math.prod(divisors), math.prod(filter(is_known, sizes))
    unknown = [size for size in sizes if not is_known(size)]
    if divisor == 0 or len(unknown) > 1:
        return None, -1
    if not unknown:
        return known // divisor, known % divisor
    return unknown[0], 0 if known == divisor and is_symbol(unknown[0]) else -1


_checked_reshape = operation(_reshape_of_size, "Reshape")


def broadcast_to(input: Any, shape: Any, name: str | None = None) -> Any:
    """Returns a tensor repeated along its axes of size 1, and new ones before, to fill a shape."""
    return _broadcast_to(input, shape=sizes_of(shape), name=name)


def range(
    start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None, name: str | None = None
) -> Any:
    """Returns the numbers from `start` up to `limit`, without it, in steps of `delta`.

    Args:
      start: where it begins; if `limit` is None, the limit, and it begins at 0.
      limit: where it ends; a tensor, or a size of one, if `delta` is 1.
      delta: the distance.
      dtype: dtype of the numbers; None for that of the arguments.
      name: name of the operation.

    Raises:
      ValueError: if `delta` is not 1 and an argument is a tensor.
    """
    first: Any = 0 if limit is None else start
    end: Any = start if limit is None else limit
    given = (first, end, delta)
    if not any(isinstance(x, Symbolic) or jax.export.is_symbolic_dim(x) for x in given):
        kind = jnp.result_type(*_numbers(*given)) if dtype is None else as_dtype(dtype)
        n = len(np.arange(*given))
        return _arange(first, n, delta, kind, name=name or "range")
    if isinstance(delta, Symbolic) or delta != 1:
        raise ValueError(f"a range up to a tensor has steps of 1, got {delta!r}; multiply it")
    n = size_of(end - first if isinstance(first, Symbolic) or first != 0 else end)
    return _arange(first, n, delta, as_dtype(dtype or jnp.int32), name=name or "range")


def linspace(start: Any, stop: Any, num: Any, name: str | None = None, axis: int = 0) -> Any:
    """Returns `num` numbers at equal distances from `start` to `stop`, both among them."""
    return _linspace(start, stop, size_of(num), axis=axis, name=name or "linspace")


def eye(
    num_rows: Any,
    num_columns: Any = None,
    batch_shape: Any = None,
    dtype: Any = jnp.float32,
    name: str | None = None,
) -> Any:
    """Returns an identity matrix, or a batch of them."""
    n = size_of(num_rows)
    m = n if num_columns is None else size_of(num_columns)
    return _eye(n, m, sizes_of(batch_shape or ()), as_dtype(dtype), name=name or "eye")


def _numbers(*values: Any) -> list[Any]:
    return [value if isinstance(value, int | float) else jnp.asarray(value) for value in values]

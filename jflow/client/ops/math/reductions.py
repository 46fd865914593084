"""Reductions under TensorFlow's names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy import special

from jflow.base.values import as_dtype
from jflow.client.ops.lift import operation
from jflow.client.ops.math.conversions import limits_of
from jflow.client.ops.math.sizes import known_ints
from jflow.client.ops.strings import cast


def _reduction(fun: Callable[..., Any], op_name: str, what: str) -> Callable[..., Any]:
    call = operation(fun, op_name)

    def reduce(
        input_tensor: Any,
        axis: Any = None,
        keepdims: bool | None = None,
        name: str | None = None,
        reduction_indices: Any = None,
        keep_dims: bool | None = None,
    ) -> Any:
        axes, is_kept = _axes(axis, reduction_indices), bool(keepdims or keep_dims)
        return call(input_tensor, axis=axes, keepdims=is_kept, name=name)

    reduce.__doc__ = f"Returns {what} of a tensor over axes; over all of them if `axis` is None."
    return reduce


def _axes(axis: Any, other: Any) -> tuple[int, ...] | None:
    """Returns the axes of a reduction, which have two names in TensorFlow."""
    if axis is not None and other is not None:
        raise ValueError("give the axes by one of axis and reduction_indices")
    chosen = axis if axis is not None else other
    return None if chosen is None else tuple(known_ints(chosen, "the axes"))


def _mean(x: Any, axis: Any, keepdims: bool) -> Any:
    """Returns the mean; of integers it is an integer, rounded towards zero, as in TensorFlow."""
    x = jnp.asarray(x)
    is_integer = jnp.issubdtype(x.dtype, jnp.integer)
    return (_integer_mean if is_integer else jnp.mean)(x, axis, keepdims=keepdims)


def _integer_mean(x: Any, axis: Any, keepdims: bool) -> Any:
    axes = range(x.ndim) if axis is None else axis
    n = jnp.maximum(jnp.asarray(math.prod(x.shape[i] for i in axes), jnp.int32), 1)
    # What 32 bits cannot hold is the sum, not the sums of quotients and remainders.
    wide = x.astype(jnp.promote_types(x.dtype, jnp.int32) if x.dtype.itemsize < 4 else x.dtype)
    quotients, remainders = _divided(wide, n)
    total = jnp.sum(remainders, axis, dtype=wide.dtype, keepdims=keepdims)
    more, rest = _divided(total, n)
    mean = jnp.sum(quotients, axis, dtype=wide.dtype, keepdims=keepdims) + more
    mean += jnp.where((mean < 0) & (rest > 0), 1, 0) - jnp.where((mean > 0) & (rest < 0), 1, 0)
    return mean.astype(x.dtype)


def _divided(x: Any, n: Any) -> tuple[Any, Any]:
    """Returns quotients that are rounded towards zero, and remainders."""
    divisor = jnp.broadcast_to(n.astype(x.dtype), x.shape)
    return jax.lax.div(x, divisor), jax.lax.rem(x, divisor)


def _of_integers(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a reduction that keeps the dtype of small integers, as in TensorFlow."""

    def reduced(x: Any, axis: Any, keepdims: bool) -> Any:
        x = jnp.asarray(x)
        dtype = x.dtype if jnp.issubdtype(x.dtype, jnp.integer) else None
        return fun(x, axis, dtype=dtype, keepdims=keepdims)

    return reduced


def _greatest(x: Any, axis: Any, keepdims: bool) -> Any:
    return jnp.max(x, axis, keepdims=keepdims, initial=_identity(jnp.asarray(x), -1))


def _least(x: Any, axis: Any, keepdims: bool) -> Any:
    return jnp.min(x, axis, keepdims=keepdims, initial=_identity(jnp.asarray(x), 1))


def _identity(x: Any, sign: int) -> Any:
    """Returns what the maximum (-1) or minimum (1) of no elements is; None where there are some."""
    if 0 not in x.shape or x.dtype == bool:
        return None
    if jnp.issubdtype(x.dtype, jnp.inexact):
        return sign * jnp.inf
    least, most = limits_of(x.dtype)
    return most if sign > 0 else least


def _norm(x: Any, axis: Any, keepdims: bool, ord: Any) -> Any:  # noqa: A002
    values = x if axis is not None else jnp.ravel(x)
    order = None if ord == "euclidean" and axis is not None and len(axis) == 2 else ord
    order = 2 if order == "euclidean" else order
    axes = axis[0] if axis is not None and len(axis) == 1 else axis
    result = jnp.linalg.norm(values, order, axes, keepdims=keepdims and axis is not None)
    return jnp.reshape(result, (1,) * x.ndim) if keepdims and axis is None else result


reduce_all = _reduction(jnp.all, "All", "the logical and")
reduce_any = _reduction(jnp.any, "Any", "the logical or")
reduce_logsumexp = _reduction(
    special.logsumexp, "ReduceLogSumExp", "the logarithm of the sum of exponentials"
)
reduce_max = _reduction(_greatest, "Max", "the largest elements")
reduce_mean = _reduction(_mean, "Mean", "the means")
reduce_min = _reduction(_least, "Min", "the smallest elements")
reduce_prod = _reduction(_of_integers(jnp.prod), "Prod", "the products")
reduce_sum = _reduction(_of_integers(jnp.sum), "Sum", "the sums")

_count = operation(jnp.count_nonzero, "count_nonzero")
_norms = operation(_norm, "norm")
_arg_max = operation(jnp.argmax, "ArgMax")
_arg_min = operation(jnp.argmin, "ArgMin")
_cumsum = operation(lambda x, **given: _scan(jnp.cumsum, 0, x, **given), "Cumsum")
_cumprod = operation(lambda x, **given: _scan(jnp.cumprod, 1, x, **given), "Cumprod")


def count_nonzero(
    input_tensor: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    dtype: Any = jnp.int32,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
) -> Any:
    """Returns how many elements are not zero, over axes, as numbers of the dtype."""
    axes, is_kept = _axes(axis, reduction_indices), bool(keepdims or keep_dims)
    return _as(dtype, _count(input_tensor, axis=axes, keepdims=is_kept, name=name))


def norm(
    tensor: Any,
    ord: Any = "euclidean",  # noqa: A002
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    keep_dims: bool | None = None,
) -> Any:
    """Returns norms of vectors, or of matrices if two axes are given, by `jax.numpy.linalg.norm`.

    Args:
      tensor: T[*shape].
      ord: the order; "euclidean" for the root of the sum of squares, "fro" too of matrices.
      axis: one or two axes; None for all elements, as one vector.
      keepdims, keep_dims: whether the axes stay, of size 1.
      name: name of the operation.
    """
    axes, is_kept = _axes(axis, None), bool(keepdims or keep_dims)
    return _norms(tensor, axis=axes, keepdims=is_kept, ord=ord, name=name)


def argmax(
    input: Any,  # noqa: A002
    axis: Any = None,
    name: str | None = None,
    dimension: Any = None,
    output_type: Any = jnp.int32,
) -> Any:
    """Returns the index of the largest element along an axis, 0 if it is None; the first of equals.

    Args:
      input: T[*shape].
      axis, dimension: the axis.
      name: name of the operation.
      output_type: dtype of the indices; int64 needs JAX's 64-bit mode.
    """
    return _as(output_type, _arg_max(input, axis=_axis(axis, dimension), name=name))


def argmin(
    input: Any,  # noqa: A002
    axis: Any = None,
    name: str | None = None,
    dimension: Any = None,
    output_type: Any = jnp.int32,
) -> Any:
    """Returns the index of the smallest element along an axis; see `argmax`."""
    return _as(output_type, _arg_min(input, axis=_axis(axis, dimension), name=name))


def arg_max(
    input: Any,  # noqa: A002
    dimension: Any,
    output_type: Any = jnp.int32,
    name: str | None = None,
) -> Any:
    """Returns the index of the largest element along an axis; see `argmax`."""
    return argmax(input, dimension, name, output_type=output_type)


def arg_min(
    input: Any,  # noqa: A002
    dimension: Any,
    output_type: Any = jnp.int32,
    name: str | None = None,
) -> Any:
    """Returns the index of the smallest element along an axis; see `argmax`."""
    return argmin(input, dimension, name, output_type=output_type)


def cumsum(
    x: Any,
    axis: Any = 0,
    exclusive: bool = False,
    reverse: bool = False,
    name: str | None = None,
) -> Any:
    """Returns the sums of the elements up to each one along an axis.

    Args:
      x: T[*shape].
      axis: the axis.
      exclusive: whether each sum is without its own element.
      reverse: whether to begin at the end.
      name: name of the operation.
    """
    given = {"axis": _axis(axis, None), "exclusive": exclusive, "reverse": reverse}
    return _cumsum(x, **given, name=name)


def cumprod(
    x: Any,
    axis: Any = 0,
    exclusive: bool = False,
    reverse: bool = False,
    name: str | None = None,
) -> Any:
    """Returns the products of the elements up to each one along an axis; see `cumsum`."""
    given = {"axis": _axis(axis, None), "exclusive": exclusive, "reverse": reverse}
    return _cumprod(x, **given, name=name)


def _scan(
    fun: Callable[..., Any], first: int, x: Any, axis: int, exclusive: bool, reverse: bool
) -> Any:
    x = jnp.flip(x, axis) if reverse else x
    n = x.shape[axis]
    # With one element more, an axis whose size may be zero has some, as JAX needs.
    if has_edge := exclusive or not isinstance(n, int):
        sizes = list(x.shape)
        sizes[axis] = 1
        x = jnp.concatenate([jnp.full(sizes, first, x.dtype), x], axis)
    # TensorFlow keeps the dtype of small integers.
    result = fun(x, axis, dtype=x.dtype)
    if has_edge:
        begin = 0 if exclusive else 1
        result = jax.lax.slice_in_dim(result, begin, begin + n, axis=axis)
    return jnp.flip(result, axis) if reverse else result


def _axis(axis: Any, dimension: Any) -> int:
    (one,) = _axes(axis, dimension) or (0,)
    return one


def _as(dtype: Any, value: Any) -> Any:
    return value if as_dtype(dtype) == value.dtype else cast(value, dtype)

"""Reductions under TensorFlow's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy import special

from jflow.base.values import as_dtype
from jflow.client.ops.lift import operation
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
    mean = jnp.mean(x, axis, keepdims=keepdims)
    return mean.astype(x.dtype) if jnp.issubdtype(x.dtype, jnp.integer) else mean


def _count_nonzero(x: Any, axis: Any, keepdims: bool) -> Any:
    return jnp.count_nonzero(x, axis, keepdims=keepdims)


def _norm(x: Any, axis: Any, keepdims: bool, ord: Any) -> Any:  # noqa: A002
    values = x if axis is not None or ord not in (2, "euclidean") else jnp.ravel(x)
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
reduce_max = _reduction(jnp.max, "Max", "the largest elements")
reduce_mean = _reduction(_mean, "Mean", "the means")
reduce_min = _reduction(jnp.min, "Min", "the smallest elements")
reduce_prod = _reduction(jnp.prod, "Prod", "the products")
reduce_sum = _reduction(jnp.sum, "Sum", "the sums")

_count = operation(_count_nonzero, "count_nonzero")
_norms = operation(_norm, "norm")
_arg_max = operation(jnp.argmax, "ArgMax")
_arg_min = operation(jnp.argmin, "ArgMin")
_cumulative = {
    "Cumsum": operation(
        lambda x, axis, exclusive, reverse: _scan(jnp.cumsum, 0, x, axis, exclusive, reverse),
        "Cumsum",
    ),
    "Cumprod": operation(
        lambda x, axis, exclusive, reverse: _scan(jnp.cumprod, 1, x, axis, exclusive, reverse),
        "Cumprod",
    ),
}


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
      ord: the order; "euclidean" for the root of the sum of squares.
      axis: one or two axes; None for all elements.
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
    return _cumulative["Cumsum"](x, **given, name=name)


def cumprod(
    x: Any,
    axis: Any = 0,
    exclusive: bool = False,
    reverse: bool = False,
    name: str | None = None,
) -> Any:
    """Returns the products of the elements up to each one along an axis; see `cumsum`."""
    given = {"axis": _axis(axis, None), "exclusive": exclusive, "reverse": reverse}
    return _cumulative["Cumprod"](x, **given, name=name)


def _scan(
    fun: Callable[..., Any], first: int, x: Any, axis: int, exclusive: bool, reverse: bool
) -> Any:
    x = jnp.flip(x, axis) if reverse else x
    if exclusive:
        edge = jnp.full_like(jax.lax.slice_in_dim(x, 0, 1, axis=axis), first)
        x = jnp.concatenate([edge, jax.lax.slice_in_dim(x, 0, -1, axis=axis)], axis)
    # TensorFlow keeps the dtype of small integers.
    result = fun(x, axis, dtype=x.dtype)
    return jnp.flip(result, axis) if reverse else result


def _axis(axis: Any, dimension: Any) -> int:
    (one,) = _axes(axis, dimension) or (0,)
    return one


def _as(dtype: Any, value: Any) -> Any:
    return value if as_dtype(dtype) == value.dtype else cast(value, dtype)

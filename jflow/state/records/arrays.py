"""Operations on host tensors of any dtype."""

from __future__ import annotations

import numpy as np

from jflow.base.values import Array
from jflow.errors import InvalidArgumentError


def stack(*values: Array) -> tuple[Array]:
    """Stacks arrays of one dtype and shape along a new first dimension, T[n, ...].

    Raises:
      InvalidArgumentError: if shapes differ.
    """
    shapes = [value.shape for value in values]
    for shape in shapes:
        if shape != shapes[0]:
            raise InvalidArgumentError(
                f"Shapes of all inputs must match, got {shapes[0]} and {shape}"
            )
    return (np.stack(values),)


def shape(value: Array, *, out_type: str) -> tuple[Array]:
    """Returns the shape of an array, out_type[rank].

    Raises InvalidArgumentError if that is not a dtype of integers.
    """
    dtype = np.dtype(out_type)
    if dtype.kind not in "iu":
        raise InvalidArgumentError(f"expected a dtype of integers as out_type, got {out_type}")
    return (np.array(value.shape, dtype),)


def equal(left: Array, right: Array) -> tuple[Array]:
    """Compares arrays elementwise, with broadcasting, bool[...].

    Raises InvalidArgumentError if the shapes do not fit.
    """
    try:
        shape = np.broadcast_shapes(left.shape, right.shape)
    except ValueError as error:
        raise InvalidArgumentError(
            f"Incompatible shapes: {list(left.shape)} vs. {list(right.shape)}"
        ) from error
    return (np.asarray(np.equal(left, right), bool).reshape(shape),)


def not_equal(left: Array, right: Array) -> tuple[Array]:
    """Compares arrays elementwise; see `equal`."""
    return (~equal(left, right)[0],)


def sparse_rows(counts: Array) -> tuple[Array, Array]:
    """Returns the indices i64[n, 2] and the shape i64[2] of rows of values as a sparse matrix.

    Args:
      counts: i64[batch], the number of values in each row.
    """
    rows = np.repeat(np.arange(len(counts)), counts)
    places = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    shape = np.array([len(counts), counts.max(initial=0)], np.int64)
    return np.stack((rows, places), axis=1), shape


def padded_rows(values: Array, counts: Array, padding: object) -> Array:
    """Returns rows of values, T[batch, longest, ...], with padding after the values of each.

    Args:
      values: T[n, ...], those of all rows in order.
      counts: i64[batch], the number of values in each row.
      padding: what is added.
    """
    longest = int(counts.max(initial=0))
    result = np.full((len(counts), longest, *values.shape[1:]), padding, values.dtype)
    # The mask selects the first `counts[i]` places of row i, in the order of `values`.
    result[np.arange(longest) < counts[:, np.newaxis]] = values
    return result

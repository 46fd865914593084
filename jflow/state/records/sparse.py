"""Sparse tensors as strings, so that elements of differing size can be queued and batched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from jflow.base.packing import Limits, Record
from jflow.base.values import NUMBERS, Array, as_strings, is_string_tensor
from jflow.errors import InvalidArgumentError

_STRING = "string"
_MAX_RANK = 255
_MAX_EMPTY_ROWS = 1_000_000
"""At most so many rows without values are serialized: a shape is short, however many it tells."""


class SparsePart(Record, frozen=True):
    """A component of a sparse tensor.

    Attributes:
      dtype: its dtype, "string" for strings.
      shape: its shape.
      data: its elements, each string with its length before it.
    """

    what = "serialized part of a sparse tensor"
    limits = Limits(n_bytes=1 << 30, n_text=1 << 30)

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def serialize_sparse(indices: Array, values: Array, dense_shape: Array) -> tuple[Array]:
    """Serializes a sparse tensor as string[3]: its indices, values and shape.

    Args:
      indices: i64[n, rank].
      values: dtype[n].
      dense_shape: i64[rank].
    """
    _check(indices, values, dense_shape)
    return (as_strings([_packed(part) for part in (indices, values, dense_shape)]),)


def serialize_many_sparse(indices: Array, values: Array, dense_shape: Array) -> tuple[Array]:
    """Serializes each row of a sparse tensor, whose first axis is the batch, as string[n, 3].

    The indices must be sorted by row.

    Raises:
      InvalidArgumentError: if they are not, or rows are negative or more than the values warrant.
    """
    _check(indices, values, dense_shape)
    if not len(dense_shape):
        raise InvalidArgumentError("expected a sparse tensor of rows, got one of rank 0")
    rows = indices[:, 0] if len(indices) else np.zeros(0, np.int64)
    if np.any(rows[1:] < rows[:-1]):
        raise InvalidArgumentError("expected indices that are sorted by their rows")
    n_rows = int(dense_shape[0])
    if not 0 <= n_rows <= len(values) + _MAX_EMPTY_ROWS:
        raise InvalidArgumentError(
            f"cannot serialize {n_rows} rows with {len(values)} values: at most "
            f"{_MAX_EMPTY_ROWS} rows may be without values; give the sparse tensor the "
            "dense_shape of its batch"
        )
    ends = np.searchsorted(rows, np.arange(n_rows + 1))
    shape = _packed(dense_shape[1:])
    # Rows without values share their strings, so that they take little time and memory.
    nothing = _packed_row(indices, values, 0, 0)
    packed = [
        part
        for start, end in pairwise(ends.tolist())
        for part in (
            *(_packed_row(indices, values, start, end) if start < end else nothing),
            shape,
        )
    ]
    return (as_strings(packed).reshape(-1, 3),)


def sparse_merge(
    *arrays: Array, sizes: Sequence[int | None], already_sorted: bool
) -> tuple[Array, Array, Array]:
    """Makes a sparse tensor whose last positions are the values of other ones.

    Args:
      arrays: indices and values of a sparse tensor of positions for each size, and of that of the
        values, which all have the same indices; the shape of the first of them; the sizes that are
        None in `sizes`.
      sizes: the sizes of the dimensions in place of the last one.
      already_sorted: whether the indices that result are in order; else they are sorted.

    Returns:
      Indices i64[n, rank - 1 + len(sizes)], values dtype[n], and the shape.

    Raises:
      InvalidArgumentError: if the indices differ.
    """
    n_ids = len(sizes)
    parts, (shape, *computed) = arrays[: 2 * n_ids + 2], arrays[2 * n_ids + 2 :]
    indices, values = parts[::2], parts[1::2]
    _check(indices[0], values[0], shape)
    for number, other in enumerate(indices[1:], 1):
        _check(other, values[number], shape)
        if not np.array_equal(other, indices[0]):
            what = f"positions {number}" if number < n_ids else "values"
            raise InvalidArgumentError(
                f"expected as many positions as values in each row, but the {what} are elsewhere "
                f"than the first positions, {_first_difference(indices[0], other)}"
            )
    ids = [np.asarray(column, np.int64)[:, np.newaxis] for column in values[:-1]]
    merged = np.concatenate([indices[0][:, :-1], *ids], axis=1)
    rest = iter(computed)
    known = [int(next(rest)) if size is None else size for size in sizes]
    merged_shape = np.array([*shape[:-1].tolist(), *known], np.int64)
    if already_sorted:
        return merged, values[-1], merged_shape
    order = np.lexsort(merged.T[::-1])
    return merged[order], values[-1][order], merged_shape


def _first_difference(expected: Array, found: Array) -> str:
    """Says where two arrays of indices first differ."""
    n_common = min(len(expected), len(found))
    unequal = np.flatnonzero((expected[:n_common] != found[:n_common]).any(axis=1))
    at = int(unequal[0]) if len(unequal) else n_common
    row = (expected if at < len(expected) else found)[at]
    return f"first at {row.tolist()}; there are {len(found)} and {len(expected)}"


def _packed_row(indices: Array, values: Array, start: int, end: int) -> tuple[bytes, bytes]:
    return _packed(indices[start:end, 1:]), _packed(values[start:end])


def deserialize_many_sparse(
    serialized: Array, *, dtype: str, rank: int | None = None
) -> tuple[Array, Array, Array]:
    """Joins serialized sparse tensors of one rank to one of a rank more, whose rows they are.

    Args:
      serialized: string[n, 3].
      dtype: the dtype of the values.
      rank: the rank of each; None for whatever it is.

    Returns:
      Indices i64[m, 1 + rank], values dtype[m], and the shape, i64[1 + rank], which has n and the
      greatest size along each axis.

    Raises:
      InvalidArgumentError: if a string is malformed, the dtypes or ranks differ, or a rank is
        larger than 255.
    """
    if rank is not None:
        _check_rank(rank)
    if serialized.ndim != 2 or serialized.shape[1] != 3:
        raise InvalidArgumentError(f"expected string[n, 3], got strings of {serialized.shape}")
    rows = [[_unpacked(part) for part in row] for row in serialized.tolist()]
    n_axes = rank if rank is not None else (rows[0][2].size if rows else 0)
    for number, (indices, values, shape) in enumerate(rows):
        _check(indices, values, shape)
        own = _STRING if is_string_tensor(values) else values.dtype.name
        if own != dtype or shape.size != n_axes:
            raise InvalidArgumentError(
                f"expected sparse tensors of {dtype} and rank {n_axes}, got {own} and rank "
                f"{shape.size} in row {number}"
            )
    empty = as_strings([]) if dtype == _STRING else np.zeros(0, NUMBERS[dtype])
    numbered = [
        np.insert(row[0].reshape(-1, n_axes), 0, number, axis=1) for number, row in enumerate(rows)
    ]
    sizes = [row[2] for row in rows] or [np.zeros(n_axes, np.int64)]
    return (
        np.concatenate([np.zeros((0, n_axes + 1), np.int64), *numbered]),
        np.concatenate([empty, *(row[1] for row in rows)]),
        np.concatenate([[len(rows)], np.max(sizes, axis=0)]).astype(np.int64),
    )


def _check(indices: Array, values: Array, shape: Array) -> None:
    if indices.shape != (len(values), shape.size) or values.ndim != 1 or shape.ndim != 1:
        raise InvalidArgumentError(
            f"indices of shape {indices.shape}, values of shape {values.shape} and a shape of "
            f"{shape.shape} are no sparse tensor"
        )
    _check_rank(shape.size)


def _check_rank(rank: int) -> None:
    if not 0 <= rank <= _MAX_RANK:
        raise InvalidArgumentError(
            f"a sparse tensor has a rank from 0 to {_MAX_RANK}, got rank {rank}"
        )


def _packed(part: Array) -> bytes:
    if not is_string_tensor(part):
        data = np.ascontiguousarray(part).tobytes()
        return SparsePart(part.dtype.name, part.shape, data).to_bytes()
    items = part.reshape(-1).tolist()
    data = b"".join(len(item).to_bytes(8, "little") + item for item in items)
    return SparsePart(_STRING, part.shape, data).to_bytes()


def _unpacked(data: bytes) -> Array:
    part = SparsePart.from_bytes(data)
    if part.dtype == _STRING:
        return as_strings([*_items(part.data)]).reshape(part.shape)
    if part.dtype not in NUMBERS:
        raise InvalidArgumentError(f"a sparse tensor has no values of {part.dtype!r}")
    try:
        return np.frombuffer(part.data, NUMBERS[part.dtype]).reshape(part.shape)
    except ValueError as error:
        raise InvalidArgumentError(f"malformed {SparsePart.what}: {error}") from None


def _items(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        end = at + 8 + int.from_bytes(data[at : at + 8], "little")
        if end > len(data):
            raise InvalidArgumentError(f"malformed {SparsePart.what}: a string goes beyond its end")
        yield data[at + 8 : end]
        at = end

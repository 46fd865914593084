"""Decodes batches of Examples.

Once the lists of each Example were found, the values of a key are decoded for the whole batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from jflow.base.values import Array
from jflow.errors import InvalidArgumentError
from jflow.state.records.arrays import padded_rows, sparse_rows
from jflow.state.records.example import (
    BYTES,
    FLOATS,
    INTEGERS,
    NO_LIST,
    MalformedError,
    find_lists,
    integers_of,
)
from jflow.state.records.features import Column
from jflow.state.records.lists import Lists, example_at, feature_error, lists_of_batch
from jflow.state.records.strings import string_array

KINDS = {"string": BYTES, "float32": FLOATS, "int64": INTEGERS, "int32": INTEGERS}
"""The kind of list for each dtype of a feature."""

_KIND_NAMES = {BYTES: "string", FLOATS: "float32", INTEGERS: "int64"}


def parse_example(
    serialized: Array, *defaults: Array, columns: Sequence[Column]
) -> Sequence[Array]:
    """Parses a batch of Examples.

    Args:
      serialized: string[batch], the Examples.
      defaults: default values for each column that is not sparse, empty for none.
      columns: [key, kind, dtype, shape] of each feature, as `as_columns` returns them.

    Returns:
      For each column in order: dtype[batch, *shape] if it is "fixed", dtype[batch, longest, *shape]
      if it is a "sequence"; indices i64[n, 2], values dtype[n] and shape i64[2] if it is "sparse".

    Raises:
      InvalidArgumentError: if an Example is malformed, or a feature is missing or not as declared;
        the message names the Example and the key.
    """
    if serialized.ndim != 1:
        raise InvalidArgumentError(
            f"expected string[batch], got strings of shape {serialized.shape}"
        )
    batch_lists = lists_of_batch(serialized.tolist(), [column[0] for column in columns])
    rest = iter(defaults)
    results: list[Array] = []
    for (key, kind, dtype, shape), lists in zip(columns, batch_lists, strict=True):
        values = FeatureValues(key, dtype, lists)
        if kind == "sparse":
            results.extend(values.sparse())
        else:
            make = values.fixed if kind == "fixed" else values.sequence
            results.append(make(tuple(shape), next(rest)))
    return results


class FeatureValues:
    """The values of one feature in all Examples of a batch.

    Attributes:
      flat: dtype[n], all values in order.
      counts: i64[batch], number of values in each Example.
      is_there: bool[batch], whether the Example has the feature.

    Args:
      key, dtype: key and dtype of the feature.
      lists: its lists.
      where: returns how messages name the Example at an index.
    """

    def __init__(
        self, key: str, dtype: str, lists: Lists, where: Callable[[int], str] = example_at
    ) -> None:
        self._key, self._dtype, self._kind = key, dtype, KINDS[dtype]
        self._where = where
        self.is_there = lists.kinds != NO_LIST
        for i in np.flatnonzero(self.is_there & (lists.kinds != self._kind)):
            raise self._error(i, f"expected {dtype} values, got {_KIND_NAMES[lists.kinds[i]]}")
        read = self._read_strings if dtype == "string" else self._read_numbers
        self.flat, self.counts = read(lists)

    def fixed(self, shape: tuple[int, ...], default: Array) -> Array:
        """Returns dtype[batch, *shape], with the default for missing features."""
        size = math.prod(shape)
        wrong = np.flatnonzero(self.is_there & (self.counts != size))
        if len(wrong):
            raise self._error(
                wrong[0], f"expected {size} values of shape {shape}, got {self._count(wrong)}"
            )
        missing_rows = np.flatnonzero(~self.is_there)
        if not len(missing_rows):
            return self.flat.reshape(len(self.counts), *shape)
        if default.size != size:
            raise self._error(
                missing_rows[0], "it is required, but missing, and has no default value"
            )
        result = np.empty((len(self.counts), size), self.flat.dtype)
        result[self.is_there] = self.flat.reshape(len(self.counts) - len(missing_rows), size)
        result[missing_rows] = default.reshape(-1)
        return result.reshape(len(self.counts), *shape)

    def sequence(self, shape: tuple[int, ...], default: Array) -> Array:
        """Returns dtype[batch, longest, *shape], padded with the default."""
        size = math.prod(shape)
        wrong = np.flatnonzero(self.counts % max(size, 1))
        if len(wrong):
            raise self._error(
                wrong[0],
                f"expected a multiple of {size} values, because elements have shape {shape}, "
                f"got {self._count(wrong)}",
            )
        padding = default.item() if default.size else b"" if self._dtype == "string" else 0
        rows = padded_rows(self.flat, self.counts, padding)
        return rows.reshape(len(rows), rows.shape[1] // max(size, 1), *shape)

    def sparse(self) -> tuple[Array, Array, Array]:
        """Returns the indices i64[n, 2], the values dtype[n] and the shape i64[2]."""
        indices, shape = sparse_rows(self.counts)
        return indices, self.flat, shape

    def _read_strings(self, lists: Lists) -> tuple[Array, Array]:
        parts = lists.contents
        flat = string_array(item for strings in parts for item in strings)
        return flat, np.fromiter(map(len, parts), np.int64, len(parts))

    def _read_numbers(self, lists: Lists) -> tuple[Array, Array]:
        parts, together = lists.contents, lists.together
        if together is None:
            data = np.frombuffer(b"".join(parts), np.uint8)
            sizes = np.fromiter(map(len, parts), np.int64, len(parts))
        else:
            data = together.reshape(-1)
            sizes = np.full(len(together), together.shape[1], np.int64)
        if self._dtype == "float32":
            self._refuse(sizes % 4 != 0, "its list is damaged")
            return data.view("<f4").astype(np.float32, copy=False), sizes // 4
        return self._read_integers(data, sizes)

    def _read_integers(self, data: Array, sizes: Array) -> tuple[Array, Array]:
        ends = np.cumsum(sizes)
        is_last = data < 128
        if len(data):
            self._refuse((sizes > 0) & ~is_last[ends - 1], "its list is damaged")
        # until[i] varints end before byte i, so those of an Example are a difference.
        until = np.concatenate(([0], np.cumsum(is_last)))
        counts = until[ends] - until[ends - sizes]
        try:
            flat = integers_of(data)
        except MalformedError:
            raise InvalidArgumentError(
                f"Key: {self._key}.  Can't parse serialized Example: its list is damaged"
            ) from None
        narrow = flat.astype(self._dtype, copy=False)
        is_lost = np.flatnonzero(narrow != flat)
        if len(is_lost):
            i = np.searchsorted(np.cumsum(counts), is_lost[0], side="right")
            raise self._error(i, f"{flat[is_lost[0]]} is out of range for {self._dtype}")
        return narrow, counts

    def _refuse(self, is_wrong: Array, reason: str) -> None:
        wrong = np.flatnonzero(is_wrong)
        if len(wrong):
            raise self._error(wrong[0], reason)

    def _count(self, wrong: Array) -> int:
        return int(self.counts[wrong[0]])

    def _error(self, index: int | np.intp, reason: str) -> InvalidArgumentError:
        return feature_error(self._key, self._where(int(index)), reason)


_MISSING = (NO_LIST, b"")


class _UnusualError(Exception):
    """Raised for a feature that is missing or not as declared."""


def parse_single_example(
    serialized: Array, *defaults: Array, columns: Sequence[Column]
) -> Sequence[Array]:
    """Parses one Example, string[]; like `parse_example`, but without the batch dimension."""
    if serialized.ndim != 0:
        raise InvalidArgumentError(f"expected string[], got strings of shape {serialized.shape}")
    try:
        return _parse_one(serialized.item(), columns)
    except (_UnusualError, MalformedError):
        batch = iter(parse_example(serialized.reshape(1), *defaults, columns=columns))
        return [array for column in columns for array in drop_batch(column[1], batch)]


def drop_batch(kind: str, batch: Iterator[Array]) -> Sequence[Array]:
    """Returns the next results of a parser, those of a column, without the batch dimension."""
    if kind != "sparse":
        array = next(batch)
        return (array.reshape(array.shape[1:]),)
    indices, values, shape = next(batch), next(batch), next(batch)
    return indices[:, 1:], values, shape[1:]


def _parse_one(data: bytes, columns: Sequence[Column]) -> Sequence[Array]:
    lists = find_lists(data, [column[0] for column in columns])
    results: list[Array] = []
    for key, kind, dtype, shape in columns:
        values = _values(*lists.get(key, _MISSING), dtype)
        size = math.prod(shape)
        if kind == "sparse":
            count = len(values)
            results += np.arange(count)[:, np.newaxis], values, np.array([count])
        elif kind == "fixed" and len(values) == size:
            results.append(values.reshape(shape))
        elif kind == "sequence" and size and len(values) % size == 0:
            results.append(values.reshape(len(values) // size, *shape))
        else:
            raise _UnusualError
    return results


def _values(kind: int, content: Any, dtype: str) -> Array:
    if kind != KINDS[dtype]:
        raise _UnusualError
    if dtype == "string":
        return string_array(content)
    if dtype == "float32":
        if len(content) % 4:
            raise _UnusualError
        return np.frombuffer(content, "<f4").astype(np.float32)
    packed = np.frombuffer(content, np.uint8)
    if content.isascii():
        return packed.astype(dtype)
    if packed[-1] > 127:
        raise _UnusualError
    values = integers_of(packed)
    narrow = values.astype(dtype, copy=False)
    if narrow is not values and (narrow != values).any():
        raise _UnusualError
    return narrow

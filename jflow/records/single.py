"""One Example becomes arrays.

A batch of one would take ten times as long, for most of that goes into doing all at once. It is
still what takes care of Examples that are written in unusual ways, and words the errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from jflow.errors import InvalidArgumentError
from jflow.records.example import MalformedError, varints
from jflow.records.features import Column
from jflow.records.layout import ValueSpans, layout_of
from jflow.records.parse import KINDS, parse_example
from jflow.values import Array


class _UnusualError(Exception):
    """A feature that is not simply there."""


def parse_single_example(
    serialized: Array, *defaults: Array, columns: Sequence[Column]
) -> Sequence[Array]:
    """The features of one Example, string[]; as `parse_example` without the batch's dimension."""
    if serialized.ndim != 0:
        raise InvalidArgumentError(f"expected string[], got string{list(serialized.shape)}")
    try:
        return _parsed(serialized.item(), columns)
    except (_UnusualError, MalformedError):
        batch = iter(parse_example(serialized.reshape(1), *defaults, columns=columns))
        return [array for column in columns for array in _single(column[1], batch)]


def _single(kind: str, batch: Iterator[Array]) -> Sequence[Array]:
    if kind != "sparse":
        array = next(batch)
        return (array.reshape(array.shape[1:]),)
    indices, values, shape = next(batch), next(batch), next(batch)
    return indices[:, 1:], values, shape[1:]


def _parsed(data: bytes, columns: Sequence[Column]) -> Sequence[Array]:
    keys = [column[0].encode() for column in columns]
    layout = layout_of(data, keys)
    if layout is None:
        raise _UnusualError
    results: list[Array] = []
    for key, (_, kind, dtype, shape) in zip(keys, columns, strict=True):
        values = _values(data, layout.value_spans.get(key), dtype)
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


def _values(data: bytes, place: ValueSpans | None, dtype: str) -> Array:
    """The values of a feature, which share no memory with the Example: that may be much larger."""
    if place is None or place[0] != KINDS[dtype]:
        raise _UnusualError
    spans = place[1]
    if dtype == "string":
        strings = np.empty(len(spans), object)
        strings[:] = [data[start:end] for start, end in spans]
        return strings
    start, end = spans[0] if spans else (0, 0)
    if dtype == "float32":
        if (end - start) % 4:
            raise _UnusualError
        return np.frombuffer(data, "<f4", (end - start) // 4, start).astype(np.float32)
    packed = np.frombuffer(data, np.uint8, end - start, start)
    if data[start:end].isascii():
        return packed.astype(dtype)
    if packed[-1] > 127:
        raise _UnusualError
    values = varints(packed)
    narrow = values.astype(dtype, copy=False)
    if narrow is not values and (narrow != values).any():
        raise _UnusualError
    return narrow

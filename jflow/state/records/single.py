"""The decoder of single Examples.

A batch of one takes several times as long, because of the overhead of vectorized decoding. It is
still the fallback for missing features and for errors, so both decoders behave alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from jflow.base.values import Array
from jflow.errors import InvalidArgumentError
from jflow.state.records.example import NO_LIST, MalformedError, find_lists, integers_of
from jflow.state.records.features import Column
from jflow.state.records.parse import KINDS, parse_example
from jflow.state.records.strings import string_array

_MISSING = (NO_LIST, b"")


class _UnusualError(Exception):
    """A feature that is missing or not as declared."""


def parse_single_example(
    serialized: Array, *defaults: Array, columns: Sequence[Column]
) -> Sequence[Array]:
    """Parses one Example, string[]; returns as `parse_example`, without the batch dimension."""
    if serialized.ndim != 0:
        raise InvalidArgumentError(f"expected string[], got strings of shape {serialized.shape}")
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

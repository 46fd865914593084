"""Partitioners: functions that return the number of parts of a variable in each dimension."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

from jflow.base.values import as_dtype

Partitioner = Callable[..., Sequence[int]]
"""Takes `shape` and `dtype` by name; returns the number of parts for each dimension."""


def fixed_size_partitioner(num_shards: int, axis: int = 0) -> Partitioner:
    """Returns a partitioner that cuts one dimension into `num_shards` parts.

    Args:
      num_shards: the number of parts; at most one for each index.
      axis: the dimension.

    Raises:
      ValueError: if the number is not positive; when the partitioner is called, if there is no such
        dimension.
    """
    return partial(FixedShardsPartitioner(num_shards), axis=axis)


def variable_axis_size_partitioner(
    max_shard_bytes: int, axis: int = 0, max_shards: int | None = None
) -> Partitioner:
    """Returns a partitioner that cuts one dimension into parts of at most `max_shard_bytes`.

    Args:
      max_shard_bytes: the limit in bytes; a part has at least one index, however large it is.
      axis: the dimension.
      max_shards: the most parts, which may then be larger; None for any number.

    Raises:
      ValueError: as `fixed_size_partitioner`.
    """
    return partial(MaxSizePartitioner(max_shard_bytes, max_shards), axis=axis)


def min_max_variable_partitioner(
    max_partitions: int = 1, axis: int = 0, min_slice_size: int = 256 << 10
) -> Partitioner:
    """Returns a partitioner that makes as many parts of at least `min_slice_size` bytes as it can.

    Args:
      max_partitions: the most parts.
      axis: the dimension that is cut.
      min_slice_size: the minimal size of a part in bytes.

    Raises:
      ValueError: as `fixed_size_partitioner`.
    """
    _check_positive(max_partitions=max_partitions, min_slice_size=min_slice_size)
    return partial(MinSizePartitioner(min_slice_size, max_partitions), axis=axis)


class VariablePartitioner(ABC):
    """Base class of partitioners, which determine the number of shards of a variable.

    Variables hold no strings, so the `bytes_per_string` of those below has no effect.
    """

    @abstractmethod
    def __call__(self, shape: Sequence[int], dtype: Any, axis: int = 0) -> list[int]:
        """Returns the number of shards in each dimension, which is 1 except in `axis`."""


@dataclass(frozen=True)
class FixedShardsPartitioner(VariablePartitioner):
    """Cuts every variable into `num_shards` shards, or one per row if it has fewer rows.

    Raises ValueError if the number is not positive.
    """

    num_shards: int

    def __post_init__(self) -> None:
        _check_positive(num_shards=self.num_shards)

    def __call__(self, shape: Sequence[int], dtype: Any, axis: int = 0) -> list[int]:
        return _cut(shape, axis, self.num_shards)


@dataclass(frozen=True)
class MinSizePartitioner(VariablePartitioner):
    """Makes as many shards of at least `min_shard_bytes` as possible.

    Attributes:
      min_shard_bytes: the minimal size of a shard in bytes.
      max_shards: the most shards.
      bytes_per_string: without effect.

    Raises ValueError if one of them is not positive.
    """

    min_shard_bytes: int = 256 << 10
    max_shards: int = 1
    bytes_per_string: int = 16

    def __post_init__(self) -> None:
        _check_positive(
            min_shard_bytes=self.min_shard_bytes,
            max_shards=self.max_shards,
            bytes_per_string=self.bytes_per_string,
        )

    def __call__(self, shape: Sequence[int], dtype: Any, axis: int = 0) -> list[int]:
        n_shards = math.ceil(_bytes(shape, dtype) / self.min_shard_bytes)
        return _cut(shape, axis, min(n_shards, self.max_shards))


@dataclass(frozen=True)
class MaxSizePartitioner(VariablePartitioner):
    """Makes as few shards of at most `max_shard_bytes` as possible; never cuts a row.

    Attributes:
      max_shard_bytes: the maximal size of a shard in bytes.
      max_shards: the most shards, which may then be larger; None for any number.
      bytes_per_string: without effect.

    Raises ValueError if one of them is not positive.
    """

    max_shard_bytes: int
    max_shards: int | None = None
    bytes_per_string: int = 16

    def __post_init__(self) -> None:
        _check_positive(
            max_shard_bytes=self.max_shard_bytes,
            max_shards=1 if self.max_shards is None else self.max_shards,
            bytes_per_string=self.bytes_per_string,
        )

    def __call__(self, shape: Sequence[int], dtype: Any, axis: int = 0) -> list[int]:
        n_rows = shape[_checked(shape, axis)]
        row_bytes = _bytes(shape, dtype) / max(n_rows, 1)
        most_rows = max(1, math.floor(self.max_shard_bytes / row_bytes)) if row_bytes else n_rows
        n_shards = math.ceil(n_rows / max(most_rows, 1))
        most_shards = n_shards if self.max_shards is None else self.max_shards
        return _cut(shape, axis, min(n_shards, most_shards))


def partition_of(partitioner: Partitioner, shape: tuple[int, ...], dtype: Any) -> tuple[int, ...]:
    """Calls a partitioner; returns the number of parts in each dimension.

    Raises:
      ValueError: if the variable is a scalar, or the result is not a positive number for each
        dimension, at most one of them larger than 1.
    """
    if not shape:
        raise ValueError(f"A partitioned Variable must have rank at least 1, got shape {shape}")
    partition: Any = partitioner(shape=shape, dtype=as_dtype(dtype))
    if not isinstance(partition, list | tuple):
        raise ValueError(f"Partitioner must return a sequence, got {partition!r:.80}")
    parts = tuple(int(n) for n in partition)
    if len(parts) != len(shape):
        raise ValueError(
            "Partitioner returned a partition list that does not match the Variable's rank: "
            f"{list(parts)} for shape {shape}"
        )
    if any(n < 1 for n in parts):
        raise ValueError(f"Partitioner returned zero partitions for some axes: {list(parts)}")
    if sum(n > 1 for n in parts) > 1:
        raise ValueError(
            "Can only slice a variable along one dimension, got the partition "
            f"{list(parts)} of shape {shape}"
        )
    return tuple(min(n, max(size, 1)) for n, size in zip(parts, shape, strict=True))


def axis_of(partition: Sequence[int]) -> int:
    """Returns the dimension that a partition cuts; 0 if it has a single part."""
    return next((axis for axis, n in enumerate(partition) if n > 1), 0)


def slices_of(
    shape: tuple[int, ...], partition: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yields the offset and shape of each part; the first parts may be one index larger."""
    axis = axis_of(partition)
    size, larger = divmod(shape[axis], partition[axis])
    start = 0
    for number in range(partition[axis]):
        length = size + (number < larger)
        offset = [0] * len(shape)
        offset[axis] = start
        yield tuple(offset), (*shape[:axis], length, *shape[axis + 1 :])
        start += length


def split(value: Any, sizes: Sequence[int], axis: int = 0) -> list[Any]:
    """Cuts an array or tensor along a dimension into pieces of these sizes."""
    before = (slice(None),) * axis
    ends = accumulate(sizes, initial=0)
    return [value[(*before, slice(start, end))] for start, end in pairwise(ends)]


def _cut(shape: Sequence[int], axis: int, n_shards: int) -> list[int]:
    partition = [1] * len(shape)
    axis = _checked(shape, axis)
    partition[axis] = max(1, min(n_shards, shape[axis]))
    return partition


def _checked(shape: Sequence[int], axis: int) -> int:
    if not -len(shape) <= axis < len(shape):
        raise ValueError(
            f"Cannot partition variable along axis {axis} when shape is only {tuple(shape)}"
        )
    return axis % len(shape)


def _bytes(shape: Sequence[int], dtype: Any) -> int:
    return math.prod(shape) * int(as_dtype(dtype).itemsize)


def _check_positive(**numbers: Any) -> None:
    for name, number in numbers.items():
        if not isinstance(number, int) or number < 1:
            raise ValueError(f"{name} must be positive, got {number!r}")

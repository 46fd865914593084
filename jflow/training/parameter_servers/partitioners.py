"""Partitioners of variables for `ParameterServerStrategy`, as objects; see `variables`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jflow.client.variables.partitioners import (
    fixed_size_partitioner,
    min_max_variable_partitioner,
    variable_axis_size_partitioner,
)


class VariablePartitioner(ABC):
    """A function that says into how many shards a variable is cut.

    Variables hold no strings, so the `bytes_per_string` of those below has no effect.
    """

    @abstractmethod
    def __call__(self, shape: Sequence[int], dtype: Any, axis: int = 0) -> list[int]:
        """Returns the number of shards for each dimension, 1 for all but `axis`."""


@dataclass(frozen=True)
class FixedShardsPartitioner(VariablePartitioner):
    """Cuts every variable into `num_shards` shards, or as many as it has rows.

    Raises ValueError if the number is not positive.
    """

    num_shards: int

    def __post_init__(self) -> None:
        _check_positive(num_shards=self.num_shards)

    def __call__(self, shape: Sequence[int], dtype: Any, axis: int = 0) -> list[int]:
        return [*fixed_size_partitioner(self.num_shards, axis)(shape, dtype)]


@dataclass(frozen=True)
class MinSizePartitioner(VariablePartitioner):
    """Makes as many shards as possible of at least a minimal size.

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
        cut = min_max_variable_partitioner(self.max_shards, axis, self.min_shard_bytes)
        return [*cut(shape, dtype)]


@dataclass(frozen=True)
class MaxSizePartitioner(VariablePartitioner):
    """Makes as few shards as possible of at most a maximal size; a row is never cut.

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
        cut = variable_axis_size_partitioner(self.max_shard_bytes, axis, self.max_shards)
        return [*cut(shape, dtype)]


def _check_positive(**numbers: Any) -> None:
    for name, number in numbers.items():
        if not isinstance(number, int) or number < 1:
            raise ValueError(f"{name} must be positive, got {number!r}")

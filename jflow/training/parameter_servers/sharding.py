"""How a strategy cuts a variable into shards: what its partitioner says, and initial values."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax

from jflow.base.values import as_array, as_dtype
from jflow.client.variables.partitioners import Partitioner, slices_of


@dataclass(frozen=True)
class Initial:
    """The initial value of a variable.

    Attributes:
      value: an array, or a function without required arguments that returns one.
      shape, dtype: those of the value.
    """

    value: Any
    shape: tuple[int, ...]
    dtype: Any

    @classmethod
    def of(cls, value: Any, dtype: Any = None) -> Initial:
        """Takes what the user passes; a function is not computed here.

        Raises:
          ValueError: if there is no value.
        """
        if value is None:
            raise ValueError(
                "a variable in the scope of a strategy needs an initial value; got None"
            )
        if not callable(value):
            array = as_array(value, dtype)
            return cls(array, tuple(array.shape), array.dtype)
        aval = jax.eval_shape(value)
        return cls(value, tuple(aval.shape), aval.dtype)

    def shards(self, n_shards: int) -> list[Any]:
        """Returns the initial value of each shard.

        A function that takes `partition_shape` and `partition_offset` computes each by itself; of
        any other one's result each shard takes its rows, where it lives.
        """
        cut = slices_of(self.shape, (n_shards, *(1 for _ in self.shape[1:])))
        return [self._shard(offset, shape) for offset, shape in cut]

    def _shard(self, offset: tuple[int, ...], shape: tuple[int, ...]) -> Any:
        start, end = offset[0], offset[0] + shape[0]
        if not callable(self.value):
            return self.value[start:end]
        if _takes_partition(self.value):
            return partial(self.value, partition_shape=shape, partition_offset=offset)
        return lambda: self.value()[start:end]


def _takes_partition(initializer: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(initializer).parameters
    except (TypeError, ValueError):  # a builtin
        return False
    return {"partition_shape", "partition_offset"} <= {*parameters}


def n_shards_of(partitioner: Partitioner, initial: Initial) -> int:
    """Returns the number of shards that a partitioner wants, at most one for each row.

    Raises:
      ValueError: if its answer is not a positive number and ones.
    """
    answer: Any = partitioner(shape=initial.shape, dtype=as_dtype(initial.dtype))
    is_valid = (
        isinstance(answer, list | tuple)
        and len(answer) == len(initial.shape)
        and all(isinstance(n, int) and n > 0 for n in answer)
        and all(n == 1 for n in answer[1:])
    )
    if not is_valid:
        raise ValueError(
            "variable_partitioner must return a list or tuple of one number for each dimension, "
            f"the first positive and the others 1, got {answer!r} for shape {initial.shape}"
        )
    return min(int(answer[0]), max(initial.shape[0], 1))

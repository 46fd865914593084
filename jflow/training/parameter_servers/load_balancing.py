"""Strategies of `replica_device_setter`: which parameter server gets a variable.

They are those of `tf.contrib.training` in TensorFlow 1.15 and choose as these do.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

from jflow.base.values import is_known
from jflow.compiler.graph import Operation


class GreedyLoadBalancingStrategy:
    """Puts each variable on the parameter server with the least load so far, the first of equals.

    Args:
      num_tasks: the number of parameter servers.
      load_fn: the load of an operation, such as `byte_size_load_fn`.
    """

    def __init__(self, num_tasks: int, load_fn: Callable[[Operation], float]) -> None:
        self._load_fn = load_fn
        self._loads = [0.0] * _checked(num_tasks)

    def __call__(self, op: Operation) -> int:
        """The index of the parameter server of an operation, whose load is added there."""
        task = self._loads.index(min(self._loads))
        self._loads[task] += self._load_fn(op)
        return task

    def __repr__(self) -> str:
        return f"GreedyLoadBalancingStrategy(loads={self._loads})"


class RandomStrategy:
    """Puts each variable on a parameter server that its name chooses, in every process the same.

    Args:
      num_tasks: the number of parameter servers.
      seed: another seed gives another choice.
    """

    def __init__(self, num_tasks: int, seed: int = 0) -> None:
        self._num_tasks = _checked(num_tasks)
        self._seed = seed

    def __call__(self, op: Operation) -> int:
        """The index of the parameter server of an operation."""
        name = f"{op.name}_{self._seed}".encode()
        digest = hashlib.md5(name, usedforsecurity=False).hexdigest()
        return int(digest, 16) % self._num_tasks

    def __repr__(self) -> str:
        return f"RandomStrategy({self._num_tasks}, seed={self._seed})"


def byte_size_load_fn(op: Operation) -> int:
    """The size of a variable in bytes, for `GreedyLoadBalancingStrategy`.

    Raises:
      ValueError: if the operation is not that of a variable, or its shape is not known in full.
    """
    value = op.declares
    if value is None:
        raise ValueError(f"operation {op.name!r} declares no variable, so it has no size")
    if value.shape is None or not all(map(is_known, value.shape)):
        raise ValueError(
            f"the size of variable {op.name!r} is not known, its shape is {value.shape}; give it a "
            "shape, or balance by another function"
        )
    n_elements: int = math.prod(value.shape)
    return n_elements * int(value.dtype.itemsize)


def _checked(num_tasks: int) -> int:
    if num_tasks < 1:
        raise ValueError(f"expected at least one parameter server, got {num_tasks}")
    return num_tasks

"""Replicas: copies of one function that a worker runs at once, one on each of its GPUs."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jflow.base.cluster import Device
from jflow.training.parameter_servers.roles import WORKER_JOB


class ReduceOp(enum.Enum):
    """How the values of replicas become one."""

    SUM = "SUM"
    MEAN = "MEAN"


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PerReplica:
    """A value for each replica of a worker.

    Attributes:
      values: the values, in the order of the replicas.
    """

    values: tuple[Any, ...]


def n_replicas_of(devices: Iterable[Device]) -> int | None:
    """Returns the number of GPUs of each worker, 1 if they have none; None if there is no worker.

    Raises:
      ValueError: if workers have different numbers of GPUs.
    """
    gpus = Counter({d.task: 0 for d in devices if d.task.job == WORKER_JOB})
    gpus.update(d.task for d in devices if d.task.job == WORKER_JOB and d.type == "GPU")
    numbers = {*gpus.values()}
    if len(numbers) > 1:
        counts = ", ".join(f"{task} {n}" for task, n in sorted(gpus.items()))
        raise ValueError(f"all workers must have the same number of GPUs, got {counts}")
    return max(1, *numbers) if numbers else None


def component(tree: Any, number: int) -> Any:
    """Returns a structure with the values of one replica in place of `PerReplica`."""
    return jax.tree.map(
        lambda x: x.values[number] if isinstance(x, PerReplica) else x, tree, is_leaf=_is_value
    )


def joined(results: Sequence[Any]) -> Any:
    """Returns the structure of the results of replicas, with `PerReplica` as leaves."""
    if len(results) == 1:
        return results[0]
    return jax.tree.map(lambda *values: PerReplica(values), *results)


def values_of(value: Any) -> tuple[Any, ...]:
    """Returns the values of all replicas."""
    return value.values if isinstance(value, PerReplica) else (value,)


def reduced(op: ReduceOp | str, tree: Any, axis: int | None) -> Any:
    """Returns the sums or means over replicas, and over an axis if one is given."""
    kind = op if isinstance(op, ReduceOp) else _parsed(op)
    return jax.tree.map(lambda x: _reduced(kind, values_of(x), axis), tree, is_leaf=_is_value)


def _reduced(op: ReduceOp, values: tuple[Any, ...], axis: int | None) -> Any:
    if axis is not None:
        whole = jnp.concatenate(values, axis) if len(values) > 1 else values[0]
        return jnp.sum(whole, axis) if op is ReduceOp.SUM else jnp.mean(whole, axis)
    if len(values) == 1:
        return values[0]
    total = sum(values[1:], values[0])
    return total if op is ReduceOp.SUM else total / len(values)


def _parsed(name: Any) -> ReduceOp:
    try:
        return ReduceOp(str(name).upper())
    except ValueError:
        raise ValueError(f"expected ReduceOp.SUM or ReduceOp.MEAN, got {name!r}") from None


def _is_value(x: Any) -> bool:
    return isinstance(x, PerReplica)

"""`replica_device_setter`: variables on the parameter servers, all else on a worker.

Its strategies, which choose the parameter server of the next variable, are those of
`tf.contrib.training` in TensorFlow 1.15 and choose as these do.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from jflow.base.cluster import ClusterSpec, DeviceSpec
from jflow.base.values import is_known
from jflow.compiler.graph import Operation

PS_OPS = ("variable",)
"""The types of operations that a parameter server gets: those that stand for variables."""

Choice = Callable[[tuple[int, ...], Any], int]
"""Takes the shape and dtype of a variable; returns the position of its parameter server."""

PLACEMENTS = ("round_robin", "by_size")


def replica_device_setter(
    ps_tasks: int = 0,
    ps_device: str = "/job:ps",
    worker_device: str = "/job:worker",
    merge_devices: bool = True,
    cluster: Any = None,
    ps_ops: Collection[str] | None = None,
    ps_strategy: Callable[[Operation], int] | None = None,
) -> Callable[[Operation], str] | None:
    """Returns a device function for `jflow.device`, for replicas that share variables.

    Variables go to the parameter servers in turn, in the order in which they are made; the parts
    of a partitioned variable are variables. Operations on a variable run where it lives; all others
    request `worker_device`. A request inside the block wins: a variable that requests another job
    goes there, and one that requests a task of the parameter servers goes to that task and still
    counts as a turn. If `ps_device` names no job, such as "/cpu:0", variables get it as it is.

    Args:
      ps_tasks: the number of parameter servers; that of `cluster` if it is given.
      ps_device: their device; "" to leave variables where they are.
      worker_device: the device of all other operations; "" for none.
      merge_devices: whether fields that a request inside the block omits are filled in; if not, an
        operation with a request keeps exactly that.
      cluster: a `ClusterSpec`, or what makes one; without the job of `ps_device`, there are no
        parameter servers.
      ps_ops: the types of operations that go to parameter servers; None for `PS_OPS`.
      ps_strategy: a function from such an operation to the index of its parameter server, such as
        those of `jflow.contrib.training`; None to take them in turn.

    Returns:
      The function; None if there are no parameter servers.

    Raises:
      ValueError: if a device is malformed.
      TypeError: if there are parameter servers, and `ps_strategy` is not a function.
    """
    servers, workers = DeviceSpec.parse(ps_device), DeviceSpec.parse(worker_device)
    if cluster is not None:
        spec = cluster if isinstance(cluster, ClusterSpec) else ClusterSpec(cluster)
        ps_tasks = spec.num_tasks(servers.job) if servers.job and servers.job in spec.jobs else 0
    if not ps_tasks:
        return None
    types = PS_OPS if ps_ops is None else ps_ops
    strategy = round_robin(ps_tasks) if ps_strategy is None else ps_strategy
    if not callable(strategy):
        raise TypeError(f"ps_strategy must be callable with an operation, got {ps_strategy!r:.80}")

    def setter(op: Operation) -> str:
        requested = op.spec
        if not merge_devices and not requested.is_empty:
            return op.device
        if op.type not in types or servers.is_empty:
            return str(workers.merge(requested))
        if servers.job is None or requested.job not in (None, servers.job):
            return str(servers.merge(requested))
        return str(replace(servers, task=strategy(op)).merge(requested))

    return setter


def choice_of(placement: str | Choice, n_servers: int) -> Choice:
    """Returns what chooses the parameter servers of variables.

    Args:
      placement: a name of `PLACEMENTS`, or a function that is used as it is.
      n_servers: the number of parameter servers.

    Raises:
      ValueError: if there is no such name.
    """
    if callable(placement):
        return _in_range(placement, n_servers)
    if placement == "round_robin":
        next_server = round_robin(n_servers)
        return lambda shape, dtype: next_server()
    if placement == "by_size":
        loads = _Loads(n_servers)
        return lambda shape, dtype: loads.add_to_least(math.prod(shape) * int(dtype.itemsize))
    raise ValueError(
        f"expected {' or '.join(map(repr, PLACEMENTS))} or a function of a shape and a dtype as "
        f"variable_placement, got {placement!r:.80}"
    )


def round_robin(n_servers: int) -> Callable[..., int]:
    """Returns a function that takes the parameter servers in turn, whatever its arguments are."""
    counter = itertools.count()
    return lambda *_: next(counter) % n_servers


class _Loads:
    """The load of each parameter server; thread-safe."""

    def __init__(self, n_servers: int) -> None:
        self.by_server: list[float] = [0.0] * n_servers
        self._lock = threading.Lock()

    def add_to_least(self, load: float) -> int:
        """Adds a load to the server with the least so far, the first of equals; returns it."""
        with self._lock:
            server = self.by_server.index(min(self.by_server))
            self.by_server[server] += load
        return server


def _in_range(choose: Choice, n_servers: int) -> Choice:
    def checked(shape: tuple[int, ...], dtype: Any) -> int:
        chosen = choose(shape, dtype)
        if chosen not in range(n_servers):
            raise ValueError(
                f"variable_placement must return a parameter server from 0 to {n_servers - 1}, got "
                f"{chosen!r} for shape {shape}"
            )
        return chosen

    return checked


class GreedyLoadBalancingStrategy:
    """Puts each variable on the parameter server with the least load so far, the first of equals.

    Args:
      num_tasks: the number of parameter servers.
      load_fn: the load of an operation, such as `byte_size_load_fn`.
    """

    def __init__(self, num_tasks: int, load_fn: Callable[[Operation], float]) -> None:
        self._load_fn = load_fn
        self._loads = _Loads(_checked(num_tasks))

    def __call__(self, op: Operation) -> int:
        """Returns the index of the parameter server of an operation, whose load is added there."""
        return self._loads.add_to_least(self._load_fn(op))

    def __repr__(self) -> str:
        return f"GreedyLoadBalancingStrategy(loads={self._loads.by_server})"


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
        """Returns the index of the parameter server of an operation."""
        name = f"{op.name}_{self._seed}".encode()
        digest = hashlib.md5(name, usedforsecurity=False).hexdigest()
        return int(digest, 16) % self._num_tasks

    def __repr__(self) -> str:
        return f"RandomStrategy({self._num_tasks}, seed={self._seed})"


def byte_size_load_fn(op: Operation) -> int:
    """Returns the size of a variable in bytes, for `GreedyLoadBalancingStrategy`.

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

"""`replica_device_setter`: variables on the parameter servers, all else on a worker."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from jflow.base.cluster import ClusterSpec, DeviceSpec
from jflow.compiler.graph import Operation
from jflow.training.parameter_servers.load_balancing import round_robin

PS_OPS = ("variable",)
"""The types of operations that a parameter server gets: those that stand for variables."""


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

"""The interface of placement strategies: pure functions in two halves.

From the operations and the names of the tasks, a strategy first determines the tasks whose devices
it needs to know. The caller then queries these devices, which may take until a task is up, and the
strategy gives every operation one of them. A step therefore never waits for a task that it does not
need, and a strategy performs no I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from jflow.base.cluster import Device, Task, Wiring, state_task_of
from jflow.compiler.graph import Operation

Placement = Mapping[Operation, Device]
"""A device for each operation, in the order of the operations."""

Handles = Mapping[Operation, Device]
"""Devices of variables and resources that have been placed, by their handle ops."""

Memory = Mapping[Device, float]
"""The bytes that devices can keep; one that is missing has no known limit."""

UNLIMITED_MEMORY: Memory = MappingProxyType({})


@dataclass(frozen=True)
class Inventory:
    """The tasks of a cluster and the known devices.

    Attributes:
      master: the task whose first device is the default for stateless operations.
      tasks: every task, by job name and then by index.
      unpinned_task: the task of state that requests no device; None for `ClusterSpec.state_task`.
      successors: the tasks that have what was on tasks which have left, by these.
      devices: the devices of the tasks that were queried.
      platforms: the export platform of each of these devices; None if programs run in this process
        and are not exported.
      wiring: how the tasks reach each other.
      memory: what these devices can keep.
    """

    master: Task
    tasks: tuple[Task, ...]
    devices: Mapping[Task, Sequence[Device]] = field(default_factory=dict)
    platforms: Mapping[Device, str] | None = None
    wiring: Wiring = field(default_factory=Wiring)
    memory: Memory = field(default_factory=dict)
    unpinned_task: Task | None = None
    successors: Mapping[Task, Task] = field(default_factory=dict)

    @property
    def state_task(self) -> Task:
        """The default task of variables and resources."""
        return self.unpinned_task or state_task_of(self.tasks)


class Assignment(Protocol):
    """The first half of a placement: a task for each operation."""

    @property
    def tasks(self) -> Collection[Task]:
        """The tasks whose devices `place` requires."""

    def place(
        self, devices: Mapping[Task, Sequence[Device]], memory: Memory = UNLIMITED_MEMORY
    ) -> Placement:
        """Returns a device for each operation; `devices` has at least those of `tasks`.

        Raises:
          InvalidArgumentError: if an operation requests a device that does not exist.
          ResourceExhaustedError: if variables do not fit into the memory of the devices, and the
            strategy looks at that.
        """


class Strategy(Protocol):
    """A pure function that places the operations of a step."""

    def __call__(
        self, ops: Sequence[Operation], inventory: Inventory, *, soft: bool, handles: Handles
    ) -> Assignment:
        """Returns the first half of a placement.

        Args:
          ops: operations of one graph, in its order.
          inventory: the tasks; its devices are ignored.
          soft: whether a device type or index that does not exist, or on which colocated
            operations disagree, is dropped; jobs and tasks never are.
          handles: devices of variables and resources that have been placed; they stay there.

        Raises:
          InvalidArgumentError: if an operation requests a task that does not exist, or colocated
            operations request different devices.
        """

"""What a placement strategy is given and what it gives: data, in two halves.

A strategy first says which tasks it needs to know the devices of, from the operations and the names
of the tasks alone. The caller then finds out about those devices, which may take as long as a task
needs to come up, and the strategy gives every operation one of them. A step therefore never waits
for a task that it does not need, and a strategy never does any input or output.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from jflow.cluster import Device, Task
from jflow.graph import Operation

Placement = Mapping[Operation, Device]
"""A device for each operation, in the order of the operations."""

Handles = Mapping[Operation, Device]
"""Where variables and resources are already, by their handle operations."""

_PARAMETER_SERVER = "ps"


@dataclass(frozen=True)
class Inventory:
    """The tasks of a cluster and what is known about their devices.

    Attributes:
      master: the task whose first device is the default for stateless operations.
      tasks: every task, by job name and then by index.
      devices: the devices of the tasks that were asked for theirs.
      platforms: what programs for each of these devices are exported for; None if programs run in
        this process, which needs no exported ones.
    """

    master: Task
    tasks: tuple[Task, ...]
    devices: Mapping[Task, Sequence[Device]] = field(default_factory=dict)
    platforms: Mapping[Device, str] | None = None

    @property
    def state_task(self) -> Task:
        """The default task of variables and resources."""
        servers = [task for task in self.tasks if task.job == _PARAMETER_SERVER]
        return (servers or list(self.tasks))[0]


class Assignment(Protocol):
    """The first half of a placement."""

    @property
    def tasks(self) -> Collection[Task]:
        """The tasks whose devices `place` needs to know."""

    def place(self, devices: Mapping[Task, Sequence[Device]]) -> Placement:
        """A device for each operation. `devices` has those of `tasks` at least.

        Raises:
          InvalidArgumentError: if an operation asks for a device that does not exist.
        """


class Strategy(Protocol):
    """Places the operations of a step. It is a pure function."""

    def __call__(
        self, ops: Sequence[Operation], inventory: Inventory, *, soft: bool, handles: Handles
    ) -> Assignment:
        """The first half of a placement.

        Args:
          ops: operations of one graph, in its order.
          inventory: the tasks; the devices in it do not count.
          soft: whether a device type or index that is not there, or that colocated operations do
            not agree on, is dropped; a job or task never is.
          handles: where variables and resources are already; they stay there.

        Raises:
          InvalidArgumentError: if an operation asks for a task that does not exist, or colocated
            operations ask for different devices.
        """

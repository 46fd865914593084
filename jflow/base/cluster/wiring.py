"""`Wiring`: the links between tasks, in classes of about the same cost."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from jflow.base.cluster.device import Task

SAME_PROCESS = "process"
"""The class of the links between devices of one task."""


@dataclass(frozen=True)
class Wiring:
    """The transport and the hosts of tasks, which determine the classes of the links between them.

    Attributes:
      transport: the name of what carries messages between tasks, such as "grpc".
      hosts: the host in the address of each task; tasks that are missing share one.
      master: the task that runs the steps; None if that is not known.
    """

    transport: str = "grpc"
    hosts: Mapping[Task, str] = field(default_factory=dict)
    master: Task | None = None

    def n_further(self, tasks: Collection[Task]) -> int:
        """Returns how many of these tasks the master has to call, not counting its own."""
        return len({*tasks} - {self.master}) - (self.master is None)

    def link_class(self, source: Task, target: Task) -> str:
        """Returns the class of the link between two tasks.

        Returns:
          "process" for one task, else the transport and where it goes, such as "grpc/host" for
          tasks on one host and "grpc/network" for others.
        """
        if source == target:
            return SAME_PROCESS
        is_near = self.hosts.get(source) == self.hosts.get(target)
        return f"{self.transport}/{'host' if is_near else 'network'}"

"""How the tasks of a cluster reach each other, in classes of links that cost about the same."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from jflow.base.cluster.device import Task

SAME_PROCESS = "process"
"""The class of the links between devices of one task."""


@dataclass(frozen=True)
class Wiring:
    """What is known of the links between tasks.

    Attributes:
      transport: the name of what carries messages between tasks, such as "grpc".
      hosts: the host in the address of each task; tasks that are missing share one.
      master: the task that runs the steps; None if that is not known.
    """

    transport: str = "grpc"
    hosts: Mapping[Task, str] = field(default_factory=dict)
    master: Task | None = None

    def n_further(self, tasks: Collection[Task]) -> int:
        """How many of the tasks that take part in a step the master has to reach."""
        return len({*tasks} - {self.master}) - (self.master is None)

    def link_class(self, source: Task, target: Task) -> str:
        """The class of the link between two tasks.

        Returns:
          "process" for one task, else the transport and where it goes, such as "grpc/host" for
          tasks on one host and "grpc/network" for others.
        """
        if source == target:
            return SAME_PROCESS
        is_near = self.hosts.get(source) == self.hosts.get(target)
        return f"{self.transport}/{'host' if is_near else 'network'}"

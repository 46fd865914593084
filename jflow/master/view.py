"""`ClusterView`: what a master knows of its cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from jflow.fencing import Fences
from jflow.protocol import ClusterTasks, ServerInfo, TaskSet
from jflow.worker.gate import Gate


@dataclass(frozen=True)
class ClusterView:
    """A master's view of the cluster.

    Attributes:
      info: gives the current server info of its own server.
      tasks: the tasks of the cluster, its own among them, each by its proxy.
      gate: what steps wait at while the state that they use is moved.
      fences: the claims that its own server has heard of.
      background: runs work that outlives the sessions that started it.
    """

    info: Callable[[], ServerInfo]
    tasks: ClusterTasks
    gate: Gate = field(default_factory=Gate)
    fences: Fences = field(default_factory=Fences)
    background: TaskSet = field(default_factory=TaskSet)

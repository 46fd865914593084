"""`ClusterView`: what a master knows of its cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from jflow.base.drivers import CoreDriver
from jflow.state.core.task import TaskInfo, TasksOfCluster
from jflow.state.fencing import Fences
from jflow.state.moves import Gate

I_co = TypeVar("I_co", bound=TaskInfo, covariant=True)
T_co = TypeVar("T_co", bound=TasksOfCluster, covariant=True)


@dataclass(frozen=True)
class ClusterView(Generic[I_co, T_co]):
    """A master's view of the cluster.

    Attributes:
      info: gives what its own task says of itself at present.
      tasks: the tasks of the cluster, its own among them.
      driver: runs the master.
      gate: what steps wait at while the state that they use is moved.
      fences: the claims that its own task has heard of.
      liveness_s: gives after how many seconds without a sign of life a task counts as lost.
    """

    info: Callable[[], I_co]
    tasks: T_co
    driver: CoreDriver
    gate: Gate
    fences: Fences
    liveness_s: Callable[[], float]

"""`StartedCluster`: the base of clusters whose tasks a program starts."""

from __future__ import annotations

from collections.abc import Iterable

from jflow.base.closing import Closing
from jflow.base.cluster import ClusterSpec, Task
from jflow.base.cluster.jobs import numbered_tasks


class StartedCluster(Closing):
    """Tasks of the jobs "ps" and "worker" that this program has started.

    Args:
      ps, workers: how many tasks the two jobs have.
      name: the name of the cluster; "" if it has none.

    Raises:
      ValueError: if there is no task.
    """

    _spec: ClusterSpec
    """Set once the tasks have addresses."""

    _instead_of_copy = "other processes reach it by a target: jflow.connect(cluster.target())"

    def __init__(self, ps: int, workers: int, name: str) -> None:
        self._tasks = numbered_tasks({"ps": ps, "worker": workers})
        if not self._tasks:
            raise ValueError("a cluster needs at least one task")
        self._name = name

    @property
    def cluster_spec(self) -> ClusterSpec:
        """The tasks and their addresses."""
        return self._spec

    @property
    def tasks(self) -> list[Task]:
        """The tasks, those of the job "ps" first."""
        return list(self._tasks)

    def target(self, job: str = "worker", index: int = 0) -> str:
        """The target for sessions on the given task; it names the cluster and the task.

        A server that has taken the task's port since refuses what is meant for the task.
        """
        named = f"cluster={self._name}&" if self._name else ""
        address = self._spec.task_address(job, index)
        return f"grpc://{address}?{named}task={Task(job, index)}"

    def _at(self, addresses: Iterable[str]) -> ClusterSpec:
        """The cluster, given the address of each of its tasks."""
        jobs: dict[str, dict[int, str]] = {}
        for task, address in zip(self._tasks, addresses, strict=True):
            jobs.setdefault(task.job, {})[task.index] = address
        return ClusterSpec(jobs)

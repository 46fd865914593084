"""`RankedClusterResolver`: the base of resolvers of engines that number the processes of a job."""

from __future__ import annotations

from abc import abstractmethod

from jflow.base.cluster.jobs import PlacedProcess
from jflow.base.cluster.resolvers import ClusterResolver, Facts
from jflow.base.cluster.role import LOCAL_MASTER
from jflow.base.cluster.spec import ClusterSpec


class RankedClusterResolver(ClusterResolver):
    """The cluster of an engine that numbers processes; asks the engine again for each question.

    Args:
      rpc_layer: the protocol of targets.
    """

    def __init__(self, rpc_layer: str | None) -> None:
        self._given = Facts(rpc_layer=rpc_layer)

    @abstractmethod
    def placed(self) -> PlacedProcess:
        """The cluster, and the task of this process."""

    def _found(self) -> Facts:
        task = self.placed().task
        return Facts() if task is None else Facts(task.job, task.index)

    def cluster_spec(self) -> ClusterSpec:
        return self.placed().cluster

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        job = self.task_type if task_type is None else task_type
        index = self.task_id if task_id is None else task_id
        if job is None or index is None:
            return LOCAL_MASTER
        return self._target(job, index, rpc_layer)

    def get_task_info(self) -> tuple[str | None, int | None]:
        """The job and index of this process; None for both if it is not a task of the cluster."""
        found = self._found()
        return found.task_type, found.task_id

"""`UnionResolver`: the clusters of several resolvers as one."""

from __future__ import annotations

from itertools import chain

from jflow.base.cluster.resolvers import ClusterResolver, Facts
from jflow.base.cluster.spec import ClusterSpec


class UnionResolver(ClusterResolver):
    """The jobs of several resolvers as one cluster.

    A job that several of them have is one job: lists of tasks follow each other in the order of
    the resolvers; if one of them is sparse, their tasks keep their indices.

    Args:
      resolvers: at least one; what is not given is said by the first.
      rpc_layer, task_type, task_id: see `ClusterResolver`.

    Raises:
      TypeError: if one is not a `ClusterResolver`.
      ValueError: if there is none.
    """

    def __init__(
        self,
        *resolvers: ClusterResolver,
        rpc_layer: str | None = None,
        task_type: str | None = None,
        task_id: int | None = None,
    ) -> None:
        if not resolvers:
            raise ValueError("at least one ClusterResolver is required")
        for one in resolvers:
            if not isinstance(one, ClusterResolver):
                raise TypeError(f"all arguments must be a ClusterResolver, got {one!r:.80}")
        self._resolvers = resolvers
        self._overrides = Facts(task_type, task_id, None, rpc_layer)

    def _facts(self) -> Facts:
        first = self._resolvers[0]
        return Facts(first.task_type, first.task_id, first.environment, first.rpc_layer)

    def cluster_spec(self) -> ClusterSpec:
        """Returns the cluster as it is now.

        Raises:
          KeyError: if two resolvers have a task of the same job and index, and one is sparse.
        """
        clusters = [resolver.cluster_spec().as_dict() for resolver in self._resolvers]
        jobs: dict[str, object] = {}
        for job in dict.fromkeys(job for one in clusters for job in one):
            parts = [one[job] for one in clusters if job in one]
            lists = [part for part in parts if isinstance(part, list)]
            is_dense = len(lists) == len(parts)
            jobs[job] = list(chain.from_iterable(lists)) if is_dense else _merge_tasks(job, parts)
        return ClusterSpec(jobs)

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        if task_type is not None and task_id is not None:
            return self._target(task_type, task_id, rpc_layer)
        return self._resolvers[0].master(rpc_layer=rpc_layer)

    def __repr__(self) -> str:
        return f"UnionResolver({', '.join(map(repr, self._resolvers))})"


def _merge_tasks(job: str, parts: list[list[str] | dict[int, str]]) -> dict[int, str]:
    merged: dict[int, str] = {}
    for part in parts:
        tasks = part if isinstance(part, dict) else dict(enumerate(part))
        for index, address in tasks.items():
            if index in merged:
                raise KeyError(
                    f"two resolvers have a task {index} of job {job!r}: at {merged[index]} and at "
                    f"{address}"
                )
            merged[index] = address
    return merged

"""Checks of the cluster of a strategy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jflow.base.cluster import ClusterSpec
from jflow.base.cluster.role import n_tasks

PS_JOB, WORKER_JOB = "ps", "worker"

_JOBS = ("chief", "worker", "ps", "evaluator")


def cluster_of(cluster_resolver: Any) -> ClusterSpec:
    """Returns the cluster of a resolver, or the cluster itself.

    Args:
      cluster_resolver: a cluster resolver, a `ClusterSpec`, or a dict that makes one.

    Raises:
      TypeError: if it is something else.
      ValueError: if the cluster cannot train with parameter servers.
    """
    task_type = None
    if isinstance(cluster_resolver, ClusterSpec | Mapping):
        cluster = ClusterSpec(cluster_resolver)
    elif hasattr(cluster_resolver, "cluster_spec"):
        cluster_spec = cluster_resolver.cluster_spec()
        if not isinstance(cluster_spec, ClusterSpec):
            raise TypeError(
                "the cluster resolver must return a jflow.train.ClusterSpec, got "
                f"{cluster_spec!r:.80}"
            )
        cluster, task_type = cluster_spec, getattr(cluster_resolver, "task_type", None)
    else:
        raise TypeError(
            f"expected a cluster resolver or a jflow.train.ClusterSpec, "
            f"got {cluster_resolver!r:.80}"
        )
    _check(cluster, task_type)
    return cluster


def _check(cluster: ClusterSpec, task_type: str | None) -> None:
    if not cluster:
        raise ValueError(
            "Cluster spec must be non-empty; pass a resolver of a cluster with jobs ps and worker, "
            "or set TF_CONFIG"
        )
    unknown = [job for job in cluster.jobs if job not in _JOBS]
    if unknown:
        raise ValueError(
            f"Disallowed task type found in cluster spec: {', '.join(unknown)}. Allowed types are "
            f"{', '.join(_JOBS)}; the cluster is {cluster}"
        )
    if task_type is not None and task_type not in _JOBS:
        raise ValueError(
            f"Unrecognized task_type: {task_type!r}, valid task types are: {', '.join(_JOBS)}"
        )
    for job in ("chief", "evaluator"):
        if n_tasks(cluster, job) > 1:
            raise ValueError(f"There must be at most one {job!r} job; the cluster is {cluster}")
    for job in (PS_JOB, WORKER_JOB):
        if n_tasks(cluster, job) < 1:
            raise ValueError(f"There must be at least one {job}; the cluster is {cluster}")

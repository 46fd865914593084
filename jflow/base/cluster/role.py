"""`Role`: the role of this process in its cluster, the base of both `RunConfig` classes."""

from __future__ import annotations

import os
from dataclasses import dataclass

from jflow.base.cluster.config import TaskConfig
from jflow.base.cluster.spec import ClusterSpec

LOCAL_MASTER = ""


@dataclass(frozen=True)
class Role:
    """The role of this process in its cluster, with the names of TensorFlow's RunConfig.

    Attributes:
      cluster_spec: the cluster; empty for a process without one.
      task_type, task_id: job and index of this process.
      master: target for the sessions of this process, "" for the process itself.
      evaluation_master: the same for evaluation.
      is_chief: whether this process does the work of one task for all, such as initialization.
      num_ps_replicas, num_worker_replicas: numbers of tasks.
      model_dir: directory for checkpoints and summaries, None if not given.
    """

    cluster_spec: ClusterSpec
    task_type: str | None
    task_id: int
    master: str
    evaluation_master: str
    is_chief: bool
    num_ps_replicas: int
    num_worker_replicas: int
    model_dir: str | None


def n_tasks(cluster: ClusterSpec, job: str) -> int:
    """Returns the number of tasks of a job; 0 for an unknown job."""
    return cluster.num_tasks(job) if job in cluster.jobs else 0


def own_master(cluster: ClusterSpec, job: str, index: int) -> str:
    """Returns the target of a task; "" in a cluster of one task.

    Raises:
      ValueError: if the cluster has several tasks and not this one.
    """
    if is_alone(cluster):
        return LOCAL_MASTER
    check_task(cluster, job, index)
    return f"grpc://{cluster.task_address(job, index)}"


def is_alone(cluster: ClusterSpec) -> bool:
    """Whether the cluster has only one task, which then needs no server."""
    return len(cluster.jobs) == 1 and len(cluster.job_tasks(cluster.jobs[0])) == 1


def check_task(cluster: ClusterSpec, job: str, index: int) -> None:
    """Raises ValueError if TF_CONFIG gives a task that its cluster does not have."""
    if job not in cluster.jobs:
        raise ValueError(
            f'TF_CONFIG["task"]["type"] is {job!r}, but TF_CONFIG["cluster"] has the jobs '
            f"{cluster.jobs}"
        )
    if index not in cluster.task_indices(job):
        raise ValueError(
            f'TF_CONFIG["task"]["index"] is {index}, but TF_CONFIG["cluster"]["{job}"] has the '
            f"tasks {cluster.task_indices(job)}"
        )


def model_directory(argument: str | os.PathLike[str] | None, config: TaskConfig) -> str | None:
    """Returns the directory given by an argument or by TF_CONFIG.

    Raises:
      ValueError: if they differ, or one is empty.
    """
    path = None if argument is None else os.fspath(argument)
    if path == "" or config.model_dir == "":
        source = "model_dir" if path == "" else 'TF_CONFIG["model_dir"]'
        raise ValueError(f"{source} is empty; name a directory or omit it")
    if path and config.model_dir and path != config.model_dir:
        raise ValueError(
            f'model_dir is {path!r} and TF_CONFIG["model_dir"] is {config.model_dir!r}; '
            "where both are set they must be equal"
        )
    return path or config.model_dir

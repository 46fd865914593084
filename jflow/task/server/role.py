"""Determines which task of a cluster a server is."""

from __future__ import annotations

import operator
from typing import SupportsIndex

from jflow.base.cluster import ClusterSpec, Task, read_tf_config
from jflow.errors import InvalidArgumentError


def which_task(cluster: ClusterSpec, job: str | None, index: int | None) -> Task:
    """The task given by the arguments, else by TF_CONFIG, else the only task of the cluster.

    Raises:
      TypeError: if an argument has the wrong type.
      ValueError: if the task is not given and cannot be inferred, or TF_CONFIG is malformed.
      InvalidArgumentError: if the cluster has no such task.
    """
    if not isinstance(job, str | None):
        raise TypeError(f"job_name must be of type str, got {job!r}")
    if not isinstance(index, SupportsIndex | None):
        raise TypeError(f"task_index must be of type int, got {index!r}")
    source = "the arguments say"
    if job is None and index is None:
        told = read_tf_config()
        if told.job is not None and told.cluster:
            job, index, source = told.job, told.index, 'TF_CONFIG["task"] says'
    if job is not None and job not in cluster.jobs:
        raise InvalidArgumentError(
            f"{source} job {job!r}, which is not in the cluster; it has the jobs {cluster.jobs}"
        )
    task = _inferred(cluster, job, index)
    tasks = list(cluster.tasks())
    if task not in tasks:
        raise InvalidArgumentError(
            f"{source} {task}, which is not in the cluster; it has {[str(each) for each in tasks]}"
        )
    return task


def _inferred(cluster: ClusterSpec, job: str | None, index: int | None) -> Task:
    if job is None:
        if len(cluster.jobs) != 1:
            raise ValueError(
                "job_name must be given (--job on the command line): the cluster has the jobs "
                f'{cluster.jobs} and TF_CONFIG["task"] does not say which of them this process is'
            )
        (job,) = cluster.jobs
    if index is None:
        indices = [task.index for task in cluster.tasks() if task.job == job]
        if len(indices) != 1:
            raise ValueError(
                "task_index must be given (--index on the command line, or "
                f'TF_CONFIG["task"]["index"]): job {job!r} has the tasks {indices}'
            )
        (index,) = indices
    return Task(job, operator.index(index))

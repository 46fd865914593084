"""The role of this process as a cluster manager tells it: the variable TF_CONFIG."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

from jflow.cluster.spec import ClusterSpec


@dataclass(frozen=True)
class TaskConfig:
    """What TF_CONFIG says: the cluster and which of its tasks this process is (None: not said)."""

    cluster: ClusterSpec
    job: str | None
    index: int | None


def read_tf_config(environ: Mapping[str, str] = os.environ) -> TaskConfig:
    """Reads TF_CONFIG; an unset or empty variable gives an empty cluster.

    Raises:
      ValueError: if it is not JSON (json.JSONDecodeError) or its parts have the wrong form.
    """
    content = json.loads(environ.get("TF_CONFIG") or "{}")
    if not isinstance(content, dict) or not isinstance(content.get("task", {}), dict):
        raise ValueError(f"TF_CONFIG is an object with 'cluster' and 'task', got {content!r}")
    jobs = content.get("cluster", {})
    if isinstance(jobs, dict):
        jobs = {job: _sparse(tasks) for job, tasks in jobs.items()}
    task = content.get("task", {})
    index = task.get("index")
    return TaskConfig(ClusterSpec(jobs), task.get("type"), None if index is None else int(index))


def _sparse(tasks: object) -> object:
    """JSON has only string keys, task indices are numbers."""
    if isinstance(tasks, dict):
        return {int(index): address for index, address in tasks.items()}
    return tasks

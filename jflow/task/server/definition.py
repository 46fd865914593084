"""`ServerDef`: the task and options of a server, in the shape of TensorFlow's protobuf."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, SupportsIndex

from jflow.base.cluster import ClusterDef, ClusterDeviceFilters, ClusterSpec, Task, read_tf_config
from jflow.base.options import ConfigProto, SessionDefaults
from jflow.errors import InvalidArgumentError

_PROTOCOL = "grpc"


@dataclass
class ServerDef:
    """The definition of a server. Like `ClusterDef`, it is no protocol buffer and not serialized.

    Attributes:
      cluster: the cluster.
      job_name, task_index: the task of the server; None to infer it.
      protocol: the transport.
      default_session_config: options of sessions that do not set them themselves.
      cluster_device_filters: which tasks each task sees; None for all.
    """

    cluster: ClusterDef = field(default_factory=ClusterDef)
    job_name: str | None = None
    task_index: int | None = None
    protocol: str = _PROTOCOL
    default_session_config: ConfigProto | None = None
    cluster_device_filters: ClusterDeviceFilters | None = None


def defined(
    server_or_cluster: ServerDef | ClusterSpec | ClusterDef | Mapping[str, object],
    job: str | None,
    index: int | None,
    protocol: str | None,
    config: ConfigProto | None,
) -> ServerDef:
    """Merges the arguments of a server into its definition; those that are not None win.

    Raises:
      TypeError: if the cluster or the config has another type.
      ValueError: if the cluster is malformed.
    """
    if config is not None and not isinstance(config, ConfigProto):
        raise TypeError(f"config must be a ConfigProto, got {type(config).__name__}")
    definition = server_or_cluster
    if not isinstance(definition, ServerDef):
        definition = ServerDef(ClusterSpec(definition).as_cluster_def())
    overrides: dict[str, Any] = {
        "job_name": job,
        "task_index": index,
        "protocol": protocol,
        "default_session_config": config,
    }
    merged = replace(
        definition, **{name: value for name, value in overrides.items() if value is not None}
    )
    if merged.default_session_config is not None:
        merged.default_session_config = merged.default_session_config.copy()
    return merged


def packed_defaults(config: ConfigProto) -> bytes:
    """Encodes the session options that a server sends clients. Raises as `SessionDefaults.of`."""
    return SessionDefaults.of(config).to_bytes()


def which_task(cluster: ClusterSpec, job: str | None, index: int | None) -> Task:
    """Returns the task of the arguments, else of TF_CONFIG, else the only one of the cluster.

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
        config = read_tf_config()
        if config.job is not None and config.cluster:
            job, index, source = config.job, config.index, 'TF_CONFIG["task"] says'
    if job is not None and job not in cluster.jobs:
        raise InvalidArgumentError(
            f"{source} job {job!r}, which is not in the cluster; it has the jobs {cluster.jobs}"
        )
    task = _infer_task(cluster, job, index)
    tasks = list(cluster.tasks())
    if task not in tasks:
        raise InvalidArgumentError(
            f"{source} {task}, which is not in the cluster; it has {[str(each) for each in tasks]}"
        )
    return task


def _infer_task(cluster: ClusterSpec, job: str | None, index: int | None) -> Task:
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

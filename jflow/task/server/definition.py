"""`ServerDef`: a task of a cluster, in the shape of TensorFlow's protocol buffer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jflow.base.cluster import ClusterDef, ClusterDeviceFilters, ClusterSpec
from jflow.base.options import ConfigProto, SessionDefaults

_PROTOCOL = "grpc"


@dataclass
class ServerDef:
    """What a server is. Like `ClusterDef` it is not a protocol buffer and is not serialized.

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
    given: ServerDef | ClusterSpec | ClusterDef | Mapping[str, object],
    job: str | None,
    index: int | None,
    protocol: str | None,
    config: ConfigProto | None,
) -> ServerDef:
    """What the arguments of a server say together; those that are not None win.

    Raises:
      TypeError: if the cluster or the config has another type.
      ValueError: if the cluster is malformed.
    """
    if config is not None and not isinstance(config, ConfigProto):
        raise TypeError(f"config must be a ConfigProto, got {type(config).__name__}")
    told = given
    if not isinstance(told, ServerDef):
        told = ServerDef(ClusterSpec(told).as_cluster_def())
    wanted: dict[str, Any] = {
        "job_name": job,
        "task_index": index,
        "protocol": protocol,
        "default_session_config": config,
    }
    made = replace(told, **{name: value for name, value in wanted.items() if value is not None})
    if made.default_session_config is not None:
        made.default_session_config = made.default_session_config.copy()
    return made


def packed_defaults(config: ConfigProto) -> bytes:
    """The options of sessions, as a server tells its clients. Raises as `SessionDefaults.of`."""
    return SessionDefaults.of(config).to_bytes()

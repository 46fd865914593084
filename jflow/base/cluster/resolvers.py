"""Cluster resolvers: sources of a program's cluster, under TensorFlow's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from jflow.base.cluster.config import TaskConfig, read_tf_config
from jflow.base.cluster.jobs import PlacedProcess
from jflow.base.cluster.role import LOCAL_MASTER, is_alone
from jflow.base.cluster.spec import ClusterSpec


class Facts(NamedTuple):
    """A resolver's facts about this process; None for unknown ones."""

    task_type: str | None = None
    task_id: int | None = None
    environment: str | None = None
    rpc_layer: str | None = None


class ClusterResolver(ABC):
    """Base of resolvers, which give the cluster of a program and the task of this process.

    Attributes:
      task_type, task_id: job and index of this process; None if it is not a task of the cluster, or
        that is not known.
      environment: the kind of cluster manager, "" if not known.
      rpc_layer: the protocol of targets, such as "grpc"; None for targets without one.
    """

    _overrides = Facts()

    @property
    def task_type(self) -> str | None:
        """The job of this process; None if it has none."""
        override = self._overrides.task_type
        return self._facts().task_type if override is None else override

    @task_type.setter
    def task_type(self, value: str | None) -> None:
        self._overrides = self._overrides._replace(task_type=value)

    @property
    def task_id(self) -> int | None:
        """The index of this process; None if it has none."""
        override = self._overrides.task_id
        return self._facts().task_id if override is None else override

    @task_id.setter
    def task_id(self, value: int | None) -> None:
        self._overrides = self._overrides._replace(task_id=value)

    @property
    def environment(self) -> str:
        """The kind of cluster manager, "" if not known."""
        override = self._overrides.environment
        return (self._facts().environment if override is None else override) or ""

    @environment.setter
    def environment(self, value: str) -> None:
        self._overrides = self._overrides._replace(environment=value)

    @property
    def rpc_layer(self) -> str | None:
        """The protocol of targets; None for targets without one."""
        override = self._overrides.rpc_layer
        return self._facts().rpc_layer if override is None else override

    @rpc_layer.setter
    def rpc_layer(self, value: str | None) -> None:
        self._overrides = self._overrides._replace(rpc_layer=value)

    def _facts(self) -> Facts:
        """Returns the facts that the resolver finds out, for those that were not given."""
        return Facts()

    @abstractmethod
    def cluster_spec(self) -> ClusterSpec:
        """Returns the cluster as it is now."""

    @abstractmethod
    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Returns the target for sessions.

        Args:
          task_type, task_id: a task; if either is None, what the resolver says of this process.
          rpc_layer: the protocol; None for the resolver's.

        Raises:
          ValueError: if the cluster has no such task.
        """

    def _target(self, job: str, index: int, rpc_layer: str | None) -> str:
        address = self.cluster_spec().task_address(job, index)
        layer = rpc_layer or self.rpc_layer
        return f"{layer}://{address}" if layer else address


class SimpleClusterResolver(ClusterResolver):
    """A resolver for a cluster that the program gives.

    Args:
      cluster_spec: the cluster.
      master: the target for sessions of this process.
      task_type, task_id, environment, rpc_layer: see `ClusterResolver`.

    Raises:
      TypeError: if the cluster is not a `ClusterSpec`.
    """

    def __init__(
        self,
        cluster_spec: ClusterSpec,
        master: str = "",
        task_type: str | None = None,
        task_id: int | None = None,
        environment: str = "",
        rpc_layer: str | None = None,
    ) -> None:
        if not isinstance(cluster_spec, ClusterSpec):
            raise TypeError(
                f"cluster_spec must be a jflow.train.ClusterSpec, got {cluster_spec!r:.80} of type "
                f"{type(cluster_spec).__name__}"
            )
        self._cluster_spec = cluster_spec
        self._master = master
        self._overrides = Facts(task_type, task_id, environment, rpc_layer)

    def cluster_spec(self) -> ClusterSpec:
        return self._cluster_spec

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        if task_type is None or task_id is None:
            return self._master
        return self._target(task_type, task_id, rpc_layer)

    def __repr__(self) -> str:
        return f"SimpleClusterResolver({self._cluster_spec!r})"


class TFConfigClusterResolver(ClusterResolver):
    """The cluster and task in TF_CONFIG, which is read again for each property or call.

    Args:
      task_type, task_id, rpc_layer, environment: used in place of those in TF_CONFIG.

    Methods and properties raise ValueError if TF_CONFIG is malformed (json.JSONDecodeError if it is
    not JSON).
    """

    def __init__(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
        environment: str | None = None,
    ) -> None:
        self._overrides = Facts(task_type, task_id, environment, rpc_layer)

    def _facts(self) -> Facts:
        config = self._config
        return Facts(config.job, config.index, config.environment, config.rpc_layer)

    def cluster_spec(self) -> ClusterSpec:
        return self._config.cluster

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        config = self._config
        if config.session_master is not None:
            return config.session_master
        if not config.cluster or is_alone(config.cluster):
            return LOCAL_MASTER
        job = self.task_type if task_type is None else task_type
        index = self.task_id if task_id is None else task_id
        if job is None:
            return LOCAL_MASTER
        return self._target(job, index or 0, rpc_layer)

    @property
    def _config(self) -> TaskConfig:
        return read_tf_config()

    def __repr__(self) -> str:
        return f"TFConfigClusterResolver({self.cluster_spec()!r})"


class RankedClusterResolver(ClusterResolver):
    """Base of resolvers for engines that number processes, which read their source at each call.

    Args:
      rpc_layer: the protocol of targets.
    """

    def __init__(self, rpc_layer: str | None) -> None:
        self._overrides = Facts(rpc_layer=rpc_layer)

    @abstractmethod
    def placed(self) -> PlacedProcess:
        """Returns the cluster, and the task of this process."""

    def _facts(self) -> Facts:
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
        """Returns job and index of this process; None for both if it is no task of the cluster."""
        facts = self._facts()
        return facts.task_type, facts.task_id

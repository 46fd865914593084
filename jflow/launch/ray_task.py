"""What runs in the processes that Ray starts: the server of a task, as an actor."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from jflow.base.cluster import ClusterSpec, Task, join_address, read_tf_config
from jflow.errors import OpError


class RayTask:
    """The actor of a task: its process has the task's server.

    Ray makes it again, with the same arguments, when its process has failed.

    Args:
      cluster: the tasks and their addresses, as for `ClusterSpec`.
      job, index: its task.
      environment: environment variables that it sets for itself.
    """

    def __init__(
        self, cluster: Mapping[str, object], job: str, index: int, environment: Mapping[str, str]
    ) -> None:
        from jflow.task.server import Server  # noqa: PLC0415 - this process may be that of a program

        os.environ.update(environment)
        self._task = Task(job, index)
        self._server: Server | None = None
        self._refusal = ""
        try:
            check_tf_config(
                f"RayCluster has started {self._task}", ClusterSpec(cluster), self._task
            )
            self._server = Server(ClusterSpec(cluster), job, index)
        except ValueError as error:
            self._refusal = str(error)
        except OpError as error:
            self._refusal = error.message

    def about(self) -> dict[str, object]:
        """What the task says of itself once it serves, or why it cannot."""
        if self._server is None:
            return {"refusal": f"{self._task} cannot start: {self._refusal}"}
        import ray  # noqa: PLC0415 - an extra, which has started this process

        node = ray.get_runtime_context().get_node_id()
        return {"incarnation": self._server.incarnation, "node": node}

    def __repr__(self) -> str:
        return f"RayTask({self._task}, {self._server!r})"


def free_address(host: str) -> str:
    """An address of this machine with a port that is free."""
    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(kind, socket.SOCK_STREAM) as one:
        one.bind((host, 0))
        return join_address(host, one.getsockname()[1])


def check_tf_config(
    other: str, cluster: ClusterSpec | None = None, task: Task | None = None
) -> None:
    """Compares TF_CONFIG with the cluster and task that Ray is to start.

    Args:
      other: what Ray does, for the message.
      cluster, task: the cluster, if it is known already, and the task of this process.

    Raises:
      ValueError: if TF_CONFIG describes another one.
    """
    told = read_tf_config()
    own = None if told.job is None else Task(told.job, told.index or 0)
    is_silent = not told.cluster and own is None
    if is_silent or (cluster and told.cluster == cluster and own in (None, task)):
        return
    shown = "" if cluster is None else f" of the cluster {cluster.as_dict()}"
    raise ValueError(
        f"TF_CONFIG describes the cluster {told.cluster.as_dict()} and says that this process is "
        f"{own or 'no task of it'}, but {other}{shown}; unset TF_CONFIG where Ray starts tasks, or "
        "use the cluster that it describes, without RayCluster"
    )

"""`ClusterTasks`: the proxies of the tasks of a server's cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from jflow.base.cluster import ClusterSpec, Target, Task
from jflow.base.drivers.loop import TaskSet
from jflow.base.values import SentArray
from jflow.errors import InvalidArgumentError, OpError
from jflow.net.protocol.handshake import Caller
from jflow.net.protocol.peer import Arrivals, Peer
from jflow.net.protocol.proxy import TaskProxy
from jflow.net.protocol.rpcs import WORKER
from jflow.net.protocol.tokens import Secret
from jflow.net.protocol.transport import Transport

_LOOK_S = 1.0
"""How long a task has to answer that another process wants to replace, in seconds."""


class ClusterTasks:
    """Proxies by task; connections are made at their first use. Use it on the event loop only.

    Args:
      cluster: the tasks and their addresses.
      transport: carries the frames.
      secret: the token.
      task: the task of the server that calls.
      cluster_name: the name of the cluster; "" if it has none.

    Attributes:
      own: the proxy of the server's own task; set it before it is used.
      arrivals: see `Peer`; set it before the first connection.
    """

    def __init__(
        self,
        cluster: ClusterSpec,
        transport: Transport,
        secret: Secret,
        task: Task,
        cluster_name: str = "",
    ) -> None:
        self._transport = transport
        self._secret = secret
        self._task = task
        self._cluster_name = cluster_name
        self._peers: dict[Task, Peer] = {}
        self._closing = TaskSet()
        self.replace_members(cluster, {})
        self.own: TaskProxy | None = None
        self.arrivals: Arrivals | None = None

    @property
    def cluster(self) -> ClusterSpec:
        """The tasks of the cluster."""
        return self._view[0]

    @property
    def successors(self) -> Mapping[Task, Task]:
        """The tasks that have what was on tasks which have left, by these."""
        return self._successors

    def replace_members(self, cluster: ClusterSpec, successors: Mapping[Task, Task]) -> None:
        """Replaces the tasks and their successors; any thread may do that."""
        self._successors = successors
        # One assignment replaces the cluster and its connections together.
        self._view: tuple[ClusterSpec, dict[Task, Peer]] = (cluster, {})

    def __getitem__(self, task: Task) -> TaskProxy:
        """Returns the proxy of a task, or of the successor of one that has left.

        Raises:
          InvalidArgumentError: if the cluster has no such task.
        """
        task = self._successors.get(task, task)
        return self.own if task == self._task and self.own is not None else self.peer(task)

    async def is_up(self, task: Task, address: str) -> bool:
        """Whether a task answers at an address, which need not be that in the cluster."""
        peer = self._new_peer(task, address, self.cluster)
        try:
            await peer.connect(_LOOK_S)
        except OpError:
            return False
        finally:
            await peer.close()
        return True

    def peer(self, task: Task) -> Peer:
        """Returns the proxy of another task. Raises as `tasks[task]`."""
        cluster, peers = self._view
        peer = peers.get(task)
        if peer is None:
            peer = peers[task] = self._find(task, cluster)
        return peer

    def _find(self, task: Task, cluster: ClusterSpec) -> Peer:
        try:
            address = cluster.task_address(task.job, task.index)
        except ValueError as error:
            raise InvalidArgumentError(str(error)) from None
        peer = self._peers.get(task)
        if peer is None or peer.address != address:
            if peer is not None:
                self._closing.start(peer.close())
            peer = self._peers[task] = self._new_peer(task, address, cluster)
        return peer

    def _new_peer(self, task: Task, address: str, cluster: ClusterSpec) -> Peer:
        target = Target(address, self._cluster_name, task)
        own_address = cluster.task_address(self._task.job, self._task.index)
        caller = Caller(self._secret, WORKER.name, target, self._task, own_address)
        peer = Peer(self._transport, task, caller)
        peer.arrivals = self.arrivals
        return peer

    def deliver(
        self, target: Task, step: int, values: Mapping[int, SentArray | None]
    ) -> Awaitable[None] | None:
        """Sends values to another task. See `Peer.deliver`."""
        return self.peer(target).deliver(step, values)

    async def close(self) -> None:
        """Ends every connection."""
        for peer in self._peers.values():
            await peer.close()
        self._peers.clear()
        self._view = (self.cluster, {})

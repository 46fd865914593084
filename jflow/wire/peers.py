"""A server's connections to the other tasks of its cluster."""

from __future__ import annotations

from jflow.cluster import ClusterSpec, Task
from jflow.errors import InvalidArgumentError
from jflow.wire.background import Background
from jflow.wire.frame import Array
from jflow.wire.peer import GrpcPeer


class Peers:
    """Connections by task, each made when it is first needed. To be used on the event loop.

    Args:
      cluster: who there is, and where; may be replaced.
      token: the secret to show.
    """

    def __init__(self, cluster: ClusterSpec, token: str) -> None:
        self.cluster = cluster
        self._token = token
        self._peers: dict[Task, GrpcPeer] = {}
        self._leaving = Background()

    def __getitem__(self, task: Task) -> GrpcPeer:
        """The connection to a task. Raises InvalidArgumentError if the cluster has no such task."""
        try:
            address = self.cluster.task_address(task.job, task.index)
        except ValueError as error:
            raise InvalidArgumentError(str(error)) from None
        peer = self._peers.get(task)
        if peer is None or peer.address != address:
            if peer is not None:
                self._leaving.start(peer.close())
            peer = self._peers[task] = GrpcPeer(task, address, self._token)
        return peer

    async def deliver(self, target: Task, step: int, edge: int, tensor: Array | None) -> None:
        """Sends a task a value, or a bare signal, under an edge of a step."""
        await self[target].deliver(step, edge, tensor)

    async def close(self) -> None:
        """Ends every connection."""
        for peer in self._peers.values():
            await peer.close()
        self._peers.clear()

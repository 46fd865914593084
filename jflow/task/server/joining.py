"""`join_cluster`: makes a task a member of a running cluster, before its server starts."""

from __future__ import annotations

from jflow.base.cluster import Target, Task, join_address, split_address
from jflow.base.deadline import Deadline
from jflow.net.wire import connect
from jflow.state.core import ClusterMembers
from jflow.state.members import MemberList

_CONNECT_S = 10.0
_JOIN_S = 60.0


def join_cluster(target: str, job: str, index: int | None, address: str) -> tuple[Task, MemberList]:
    """Adds a task to a cluster; see `Server.joining`.

    Args:
      target: any server of the cluster.
      job, index: of the task; None for the next index.
      address: where it will listen, "host:port".

    Returns:
      The task, and the list of members with it.

    Raises:
      OpError: as `Server.joining`.
      ValueError: if the target or the address is malformed.
    """
    deadline = Deadline(_JOIN_S)
    at = join_address(*split_address(address))
    client = connect(Target.parse(target), _CONNECT_S, deadline)
    try:
        name, packed = client.call(ClusterMembers.add, job, index, at, _CONNECT_S, deadline)
    finally:
        client.close()
    return Task.parse(name), MemberList.from_bytes(packed)

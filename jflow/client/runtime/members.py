"""`KnownMembers`: the members of a cluster as a client knows them."""

from __future__ import annotations

from jflow.base.cluster import ClusterSpec, DeviceFilters, Task
from jflow.base.deadline import Deadline
from jflow.base.deadline.clock import now
from jflow.errors import UnimplementedError
from jflow.net.protocol import MasterClient
from jflow.state.core import ClusterMembers
from jflow.state.members import MemberList

_AGE_S = 1.0
"""How old what is known may be, in seconds."""


class KnownMembers:
    """The list of members that the master of a client has, read again when it is needed."""

    def __init__(self) -> None:
        self._read: tuple[MasterClient, MemberList, float] | None = None

    def forget(self) -> None:
        """Forgets the list, because it is known to be old."""
        self._read = None

    def of(self, client: MasterClient, deadline: Deadline) -> MemberList:
        """Returns the list, of which the master may have a newer one for a second.

        Args:
          client: the connection to the master.
          deadline: of the call that needs it.
        """
        known = self._read
        if known is not None and known[0] is client and now() < known[2] + _AGE_S:
            return known[1]
        members = read_members(client, deadline)
        self._read = client, members, now()
        return members


def read_members(client: MasterClient, deadline: Deadline) -> MemberList:
    """Returns the list of members that a master has."""
    try:
        return MemberList.from_bytes(client.call(ClusterMembers.read, deadline))
    except UnimplementedError:  # an earlier version, whose members do not change
        return MemberList.first(client.info.cluster)


def visible_tasks(own: Task, cluster: ClusterSpec, filters: DeviceFilters) -> list[Task]:
    """Returns the tasks that the filters of a session leave, and always that of its master."""
    return [task for task in cluster.tasks() if task == own or filters.see_task(task)]

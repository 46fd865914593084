"""Keeps what a coordinator knows of its cluster up to date, as tasks join and leave."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from jflow.base.deadline import Deadline
from jflow.client.functions import Connection
from jflow.errors import OpError
from jflow.state.members import MemberList

_PERIOD_S = 1.0
_PATIENCE_S = 5.0


def follow_members(
    connection: Connection, closed: threading.Event, changed: Callable[[MemberList], object]
) -> None:
    """Starts a thread that looks for changes of the members of a cluster, until `closed` is set.

    Args:
      connection: to the cluster.
      closed: set when the coordinator ends.
      changed: called on that thread with the list, and with each new one.
    """
    threading.Thread(
        target=_follow,
        args=(connection, closed, changed),
        name="jflow coordinator members",
        daemon=True,
    ).start()


def _follow(
    connection: Connection, closed: threading.Event, changed: Callable[[MemberList], object]
) -> None:
    epoch = -1
    while not closed.wait(_PERIOD_S):
        # It is not waited for: if the server is away, the list is read once it is back.
        with suppress(OpError, RuntimeError):
            members = connection.members(Deadline(_PATIENCE_S))
            if members is not None and members.epoch > epoch:
                changed(members)
                epoch = members.epoch

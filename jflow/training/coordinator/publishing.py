"""Tells a cluster the status of a coordinator, which lives in a client, for its watchers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from jflow.base.deadline import Deadline
from jflow.client.functions import Connection
from jflow.errors import InvalidArgumentError, OpError
from jflow.state.watch import CoordinatorStatus

_PERIOD_S = 1.0
"""How often the status is told at most, in seconds; nothing is sent while it does not change."""
_PATIENCE_S = 5.0


def publish_status(
    status: Callable[[], CoordinatorStatus], connection: Connection, closed: threading.Event
) -> None:
    """Starts a thread that tells the status whenever it has changed, until `closed` is set.

    Args:
      status: returns the present status.
      connection: to the server that is told.
      closed: set when the coordinator ends.
    """
    threading.Thread(
        target=_publish, args=(status, connection, closed), name="jflow closures told", daemon=True
    ).start()


def _publish(
    status: Callable[[], CoordinatorStatus], connection: Connection, closed: threading.Event
) -> None:
    told: CoordinatorStatus | None = None
    while not closed.wait(_PERIOD_S):
        present = status()
        if present == told:
            continue
        # It is not waited for: if a server is away, the next status is sent once it is back.
        with suppress(OpError, RuntimeError):
            try:
                connection.publish_coordinator(present, Deadline(_PATIENCE_S))
                told = present
            except InvalidArgumentError:  # a server of an earlier version, which has no such call
                return

"""Tells a cluster the status of a coordinator, which lives in a client, for its watchers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from jflow.base.deadline import Deadline
from jflow.base.deadline.clock import now
from jflow.client.functions import Connection
from jflow.errors import OpError
from jflow.state.watch import CoordinatorStatus

_PERIOD_S = 1.0
"""How often the status is published at most, in seconds."""
_REPEATED_S = 10.0
"""How often the same status is sent again, in seconds: the server may be another one by then."""
_PATIENCE_S = 5.0


def publish_status(
    status: Callable[[], CoordinatorStatus], connection: Connection, closed: threading.Event
) -> None:
    """Starts a thread that publishes the status whenever it has changed, until `closed` is set.

    Args:
      status: returns the present status.
      connection: to the server that it is published to.
      closed: set when the coordinator ends.
    """
    threading.Thread(
        target=_publish,
        args=(status, connection, closed),
        name="jflow coordinator status",
        daemon=True,
    ).start()


def _publish(
    status: Callable[[], CoordinatorStatus], connection: Connection, closed: threading.Event
) -> None:
    published, at = None, 0.0
    while not closed.wait(_PERIOD_S):
        present = status()
        if present == published and now() < at + _REPEATED_S:
            continue
        # It is not waited for: if a server is away, the next status is sent once it is back.
        with suppress(OpError, RuntimeError):
            connection.publish_coordinator(present, Deadline(_PATIENCE_S))
            published, at = present, now()
    with suppress(OpError, RuntimeError):
        connection.publish_coordinator(None, Deadline(_PATIENCE_S))

"""What a coordinator and its cluster tell each other: its status, and the cluster's members."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from jflow.base.deadline import Deadline
from jflow.base.deadline.clock import now
from jflow.client.functions import Connection
from jflow.errors import OpError
from jflow.state.members import MemberList
from jflow.state.watch import CoordinatorStatus

_LOG = logging.getLogger(__name__)

_PERIOD_S = 1.0
"""How often the status is published at most, and the list of members read, in seconds."""
_REPEATED_S = 10.0
"""How often the same status is sent again, in seconds: the server may be another one by then."""
_PATIENCE_S = 5.0


def exchange_with_cluster(
    connection: Connection,
    closed: threading.Event,
    status: Callable[[], CoordinatorStatus],
    changed: Callable[[MemberList], object],
) -> None:
    """Starts a thread that publishes the status of a coordinator and follows the cluster's members.

    Args:
      connection: to the cluster.
      closed: set when the coordinator ends.
      status: returns the present status, which watchers of the cluster see.
      changed: called on that thread with the list of members, and with each new one; called again
        a period later if it raises. It must not wait for steps, because the status would.
    """
    threading.Thread(
        target=_exchange,
        args=(connection, closed, status, changed),
        name="jflow coordinator exchange",
        daemon=True,
    ).start()


def _exchange(
    connection: Connection,
    closed: threading.Event,
    status: Callable[[], CoordinatorStatus],
    changed: Callable[[MemberList], object],
) -> None:
    published, at, epoch = None, 0.0, -1
    while not closed.wait(_PERIOD_S):
        # A server that is away is not waited for: what fails is done once it is back.
        with suppress(OpError, RuntimeError):
            present = status()
            if present != published or now() >= at + _REPEATED_S:
                connection.publish_coordinator(present, Deadline(_PATIENCE_S))
                published, at = present, now()
        try:
            members = connection.members(Deadline(_PATIENCE_S))
            if members is not None and members.epoch > epoch:
                changed(members)
                epoch = members.epoch
        except (OpError, RuntimeError):
            continue
        except Exception:
            _LOG.exception("the coordinator could not take the members of the cluster")
    with suppress(OpError, RuntimeError):
        connection.publish_coordinator(None, Deadline(_PATIENCE_S))

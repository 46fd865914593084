"""`EarlyValues`: limits the values that arrive for steps that have not begun on this task."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Any

from jflow.base.deadline.clock import now
from jflow.net.protocol import liveness_s
from jflow.task.worker.rendezvous import Rendezvous

EARLY_S = 30.0
"""A value is dropped when it has been early for once to twice this time, in seconds. All tasks
begin a step at once, unless its master is lost."""

_POLL_S = 0.01


class EarlyValues:
    """Drops early values after a while, and makes streams wait that bring too many.

    Call it on the event loop only.

    Args:
      rendezvous: has the values.
    """

    def __init__(self, rendezvous: Rendezvous[Any]) -> None:
        self._rendezvous = rendezvous
        self._timer: asyncio.TimerHandle | None = None
        self._patience_s = liveness_s() / 3

    def watch(self) -> None:
        """Starts a timer that drops early values which no step has taken by then."""
        if self._timer is None and self._rendezvous.has_early:
            self._timer = asyncio.get_running_loop().call_later(EARLY_S, self._sweep)

    async def make_room(self, sender: Hashable) -> None:
        """Waits until steps take the early values of a stream; after a while, drops the oldest.

        The stream is not read meanwhile. It is for less time than after which the other end counts
        this one as lost.
        """
        until = now() + self._patience_s
        while self._rendezvous.is_crowded(sender) and now() < until:
            await asyncio.sleep(_POLL_S)
        self._rendezvous.make_room(sender)

    def _sweep(self) -> None:
        self._timer = None
        self._rendezvous.sweep()
        self.watch()

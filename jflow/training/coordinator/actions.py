"""`ActionQueue`: what the scheduler has decided, carried out in order by one thread at a time."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from jflow.training.coordinator.events import Action, Forget

_LOG = logging.getLogger(__name__)


class ActionQueue:
    """Actions that were decided and not carried out yet.

    They are decided under a lock and carried out outside of it, in the order in which they were
    decided.

    Args:
      changed: the lock, which is notified when nothing is left to do.
      carry_out: carries out one action; no two run at a time.
    """

    def __init__(
        self, changed: threading.Condition, carry_out: Callable[[Action | Forget], None]
    ) -> None:
        self._changed = changed
        self._carry_out = carry_out
        self._actions: deque[Action | Forget] = deque()
        self._is_acting = False

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is left to do; the lock must be held."""
        return not self._actions and not self._is_acting

    def add(self, actions: Iterable[Action | Forget]) -> None:
        """Adds actions, which `act` carries out; the lock must be held."""
        self._actions += actions

    def apply_event(self, event: Callable[[float], Iterable[Action]]) -> None:
        """Gives the scheduler an event with the time, and carries out the resulting actions."""
        with self._changed:
            self._actions += event(time.monotonic())
        self.act()

    def act(self) -> None:
        """Carries out the actions, unless another thread is doing so."""
        with self._changed:
            if self._is_acting:
                return
            self._is_acting = True
        while True:
            with self._changed:
                if not self._actions:
                    self._is_acting = False
                    self._changed.notify_all()
                    return
                actions, self._actions = self._actions, deque()
            for action in actions:
                try:
                    self._carry_out(action)
                except Exception:  # of one action; the others have to be carried out
                    _LOG.exception("an internal error of the coordinator at %s", action)

"""`Senders`: finds the waits for values that may have been lost with a connection.

A value is sent once. If the connection ends on which it is under way, its sender may have finished
its part of the step before, so that nothing but the end of the connection could end the wait. The
same holds between a master and a task: a step does not survive a connection that it depends on.

A state machine without I/O: it tells which waiters have to fail, and the caller fails them.

Invariants:

* Connections and waits are numbered in one order. A task sends on its latest connection only, so a
  connection that ends fails the waits that began before the next one of its task was opened, and no
  later ones.
* A task that has no connection yet fails nothing: it connects when it has something to send.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from jflow.base.cluster import Task

Waiter = TypeVar("Waiter", bound=Hashable)


@dataclass(frozen=True)
class Sender:
    """The stream of a caller, which may bring values.

    Attributes:
      task: the task that calls; None if the caller is not a task of a cluster.
      number: of the connection, in the order in which connections and waits began.
    """

    task: Task | None
    number: int


class Senders(Generic[Waiter]):
    """The connections from other tasks, and the waits for their values."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._open: dict[Task, set[int]] = {}
        self._pending: dict[Task, dict[Waiter, int]] = {}

    def connected(self, task: Task | None = None) -> Sender:
        """Adds a connection that a caller has opened."""
        sender = Sender(task, next(self._numbers))
        if task is not None:
            self._open.setdefault(task, set()).add(sender.number)
        return sender

    def lost(self, sender: Sender) -> list[Waiter]:
        """Removes a lost connection; returns the waiters whose values may be lost with it.

        Raises:
          KeyError: if it has ended before.
        """
        task = sender.task
        if task is None:
            return []
        numbers = self._open[task]
        numbers.remove(sender.number)
        if not numbers:
            del self._open[task]
        next_one = min((one for one in numbers if one > sender.number), default=math.inf)
        pending = self._pending.get(task, {})
        return [waiter for waiter, began in pending.items() if began < next_one]

    def add_wait(self, task: Task, waiter: Waiter) -> None:
        """Adds a waiter for a value from a task."""
        self._pending.setdefault(task, {})[waiter] = next(self._numbers)

    def remove_wait(self, task: Task, waiter: Waiter) -> None:
        """Removes a waiter."""
        pending = self._pending[task]
        del pending[waiter]
        if not pending:
            del self._pending[task]

"""`ParkedAttempts`: attempts that wait on queues, and that a move may cancel."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from jflow.moves import MovedError, StateId
from jflow.resources import Attempt, Cell
from jflow.resources.kernel import KernelRun


class ParkedAttempts:
    """The waiting attempts of steps that can be run again if they end while they wait; thread-safe.

    While a queue is held nothing completes such an attempt, so the hold would never become idle.
    The attempt is cancelled instead, and its step run again after the move.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leaving: set[StateId] = set()
        self._parked: dict[Attempt, tuple[Cell, Collection[StateId]]] = {}

    def watched(self, run: KernelRun, states: Collection[StateId]) -> KernelRun:
        """The same as a kernel's run, whose attempts a move of any of the state cancels.

        Args:
          run: of a kernel that has no effect if it ends while it waits.
          states: the state that its plan uses.
        """
        try:
            wanted = next(run)
            while True:
                with self._waiting(*wanted, states):
                    try:
                        yield wanted
                    except BaseException as error:  # also GeneratorExit, which ends `run`
                        wanted = run.throw(error)
                    else:
                        wanted = next(run)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def leave(self, states: Collection[StateId]) -> None:
        """Cancels what waits for state, now and until `stay`."""
        with self._lock:
            self._leaving.update(states)
            found = [
                (cell, attempt)
                for attempt, (cell, used) in self._parked.items()
                if not self._leaving.isdisjoint(used)
            ]
        for cell, attempt in found:
            _interrupt(cell, attempt)

    def stay(self, states: Collection[StateId]) -> None:
        """Cancels no more of what waits for state."""
        with self._lock:
            self._leaving.difference_update(states)

    @contextmanager
    def _waiting(self, cell: Cell, attempt: Attempt, used: Collection[StateId]) -> Iterator[None]:
        with self._lock:
            self._parked[attempt] = cell, used
            is_leaving = not self._leaving.isdisjoint(used)
        if is_leaving:
            _interrupt(cell, attempt)
        try:
            yield
        finally:
            with self._lock:
                del self._parked[attempt]


def _interrupt(cell: Cell, attempt: Attempt) -> None:
    said = "the queue that the step waits for is about to move; run the step again"
    cell.interrupt(attempt, MovedError(said))

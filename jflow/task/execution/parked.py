"""`ParkedAttempts`: attempts that wait on queues and that a move may cancel."""

from __future__ import annotations

import threading
from collections.abc import Collection

from jflow.state.moves import MovedError, StateId
from jflow.state.resources import Attempt, Cell
from jflow.state.resources.kernel import KernelRun


class ParkedAttempts:
    """Waiting attempts of restartable steps, which a move may cancel; thread-safe.

    While a queue is held nothing completes such an attempt, so the hold would never become idle.
    The attempt is cancelled instead, and its step run again after the move.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leaving_states: frozenset[StateId] = frozenset()
        self._parked: dict[Attempt, tuple[Cell, Collection[StateId]]] = {}

    def watched(self, run: KernelRun, states: Collection[StateId]) -> KernelRun:
        """Wraps a kernel's run, so that a move of the given state cancels its waiting attempts.

        Args:
          run: of a kernel that has no effect if it ends while it waits.
          states: the state that its plan uses.
        """
        parked = self._parked
        try:
            wanted = next(run)
            while True:
                cell, attempt = wanted
                # Without the lock, which each operation on a queue would pay for: this enters the
                # attempt and then looks at what is leaving, `leave` does it the other way round.
                parked[attempt] = cell, states
                try:
                    if self._leaving_states and not self._leaving_states.isdisjoint(states):
                        _interrupt(cell, attempt)
                    yield wanted
                except BaseException as error:  # also GeneratorExit, which ends `run`
                    wanted = run.throw(error)
                else:
                    wanted = next(run)
                finally:
                    del parked[attempt]
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def leave(self, states: Collection[StateId]) -> None:
        """Cancels the waiting attempts of steps that use `states`, now and until `stay`."""
        with self._lock:
            self._leaving_states |= frozenset(states)
        for attempt, (cell, used) in [*self._parked.items()]:  # one step of the interpreter
            if not self._leaving_states.isdisjoint(used):
                _interrupt(cell, attempt)

    def stay(self, states: Collection[StateId]) -> None:
        """Stops cancelling the attempts of steps that use `states`."""
        with self._lock:
            self._leaving_states -= frozenset(states)


def _interrupt(cell: Cell, attempt: Attempt) -> None:
    message = "the queue that the step waits for is about to move; run the step again"
    cell.interrupt(attempt, MovedError(message))

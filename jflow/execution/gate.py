"""`StepGate`: makes the steps of a local session wait while state is moved, saved or restored."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from jflow.deadline import Deadline
from jflow.deadline.notices import WaitNotice
from jflow.errors import DeadlineExceededError
from jflow.execution.parked import ParkedAttempts
from jflow.moves import Change, Directory, StateId, Use

_HOLD = "local"


class StepGate:
    """A `Directory` for threads, and what waits for it to change; thread-safe.

    Attributes:
      parked: attempts that a move may cancel.
    """

    def __init__(self) -> None:
        self.parked = ParkedAttempts()
        self._directory = Directory()
        self._moving = threading.Lock()
        self._change = threading.Condition()
        self._n_waiting = 0
        self._numbers = itertools.count()

    def add(self, states: frozenset[StateId], changes: Sequence[Change] = ()) -> Use:
        """Adds what a step uses and changes. Raises MovedError if any of it has moved."""
        with self._change:
            return self._directory.add(states, changes)

    def enter(self, use: Use, deadline: Deadline) -> None:
        """A step begins once nothing holds what it uses.

        Raises:
          MovedError: if that has moved.
          DeadlineExceededError: if the deadline passes first.
        """
        with self._change:
            if not self._directory.enter(use):
                enter = partial(self._directory.enter, use)
                what = partial(self._obstacle, use)
                self._wait(enter, deadline, "waiting for state that moves", what)

    def leave(self, use: Use) -> None:
        """A step that had begun ends."""
        with self._change:
            self._directory.leave(use)
            if self._n_waiting:
                self._change.notify_all()

    @contextmanager
    def pausing(
        self, states: Collection[StateId], deadline: Deadline, *, is_exclusive: bool = False
    ) -> Iterator[None]:
        """A block in which no step is running that changes state, as far as that could be seen.

        Args:
          states: what is saved or restored in the block.
          deadline: limits the wait for steps that run.
          is_exclusive: whether no step may see a part of what the block changes.

        Raises:
          DeadlineExceededError: if steps do not end in time.
          MovedError: if some of the state is elsewhere.
        """
        with deadline.holding(self._moving, "waiting for state that moves"), self._change:
            name = f"save {next(self._numbers)}"
            self._directory.pause(name, states, is_exclusive=is_exclusive)
        try:
            with self._change:
                is_quiet = partial(self._directory.is_quiet, name)
                self._wait(is_quiet, deadline, "waiting for steps that change what is saved")
            yield
        finally:
            with self._change:
                self._directory.resume(name)
                self._change.notify_all()

    @contextmanager
    def holding(
        self, states: Collection[StateId], target: str, hold_s: float, deadline: Deadline
    ) -> Iterator[None]:
        """A block in which no step uses state; it ends with the move of it unless it fails.

        Args:
          states: what moves.
          target: the device that it moves to.
          hold_s: how long to wait for steps that use it, in seconds.
          deadline: of the call.

        Raises:
          DeadlineExceededError: if steps that use it do not end in time.
          MovedError: if some of it is elsewhere.
        """
        with deadline.holding(self._moving, "waiting for another move"):
            has_moved = False
            with self._change:
                self._directory.hold(_HOLD, states, target)
            try:
                self.parked.leave(states)
                left = deadline.remaining()
                limit = Deadline(hold_s if left is None else min(hold_s, left))
                self._wait_until_idle(states, limit)
                yield
                has_moved = True
            finally:
                self.parked.stay(states)
                with self._change:
                    (self._directory.move if has_moved else self._directory.release)(_HOLD)
                    self._change.notify_all()

    def _wait_until_idle(self, states: Collection[StateId], deadline: Deadline) -> None:
        with self._change:
            try:
                self._wait(partial(self._directory.is_idle, _HOLD), deadline, "moving state")
            except DeadlineExceededError as error:
                raise DeadlineExceededError(
                    f"steps that use {min(states)} did not end in time; nothing has moved. A "
                    "step that waits for a queue can be moved only if it does nothing else "
                    f"that has an effect ({error.message})"
                ) from None

    def _obstacle(self, use: Use) -> str:
        return f"a step waits {self._directory.obstacle(use)}"

    def _wait(
        self,
        is_over: Callable[[], bool],
        deadline: Deadline,
        doing: str,
        what: Callable[[], str] = str,
    ) -> None:
        """Waits for a change after which the wait is over; tells what it is for if that is long."""
        notice = WaitNotice(what)
        self._n_waiting += 1
        try:
            while not is_over():
                if not self._change.wait(notice.pause(deadline.remaining())):
                    if deadline.remaining() == 0:
                        raise deadline.error(doing)
                    notice.tell()
        finally:
            self._n_waiting -= 1

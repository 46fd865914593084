"""Resources whose attempts wait in FIFO queues, of which only the head may act."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable
from itertools import chain
from typing import Any, ClassVar, Generic, TypeVar

from jflow.errors import InvalidArgumentError, OpError
from jflow.state.resources.attempt import Attempt
from jflow.state.resources.snapshot import Snapshot, Snapshottable, checked
from jflow.state.resources.spec import Spec

State = TypeVar("State")
Saved = TypeVar("Saved", bound=Snapshot)


class QueuedAttempt(Attempt, ABC, Generic[State]):
    """Base of attempts that wait in a queue of their resource.

    If a method raises an `OpError`, the attempt fails with it.

    Attributes:
      wait_queue: the index of the wait queue that it enters.
      epoch: how often the state had been restored when the attempt last acted on it.
    """

    __slots__ = ("epoch",)
    epoch: int
    wait_queue: ClassVar[int] = 0

    def start(self, state: State) -> None:
        """Checks the attempt before it is enqueued; raises if it can never succeed.

        An attempt that does not need to enter the queue completes here.
        """

    @abstractmethod
    def advance(self, state: State) -> bool:
        """Makes the progress that is possible now; completes the attempt if nothing is left to do.

        Returns:
          Whether it changed anything.
        """

    def rollback(self, state: State) -> None:
        """Puts back what it took, because it failed or nothing read its values. Idempotent."""

    def goal(self, state: State) -> str:
        """Describes what the attempt waits for, to follow "waited" in messages."""
        return f"for {state}"

    def drop(self) -> None:
        """Forgets what it took, because a restore has replaced the state."""


WaitQueue = OrderedDict[QueuedAttempt[Any], None]
"""Attempts in order of arrival.

Not a dict: finding its first key takes time proportional to the number of keys removed before it.
"""


class QueuedResource(Snapshottable, Generic[Saved]):
    """Base of resources with one or more wait queues.

    Invariant: between two calls the head of no wait queue can act. Every method that changes the
    state or removes an attempt therefore lets the heads act in turn until none of them changes
    anything (`_advance_all`). Only a head may act, so no attempt overtakes an earlier one.

    Args:
      spec: the definition of the resource.
      name: its name in messages.
      attempts: the classes of attempts that it accepts.
      n_wait_queues: the number of wait queues.

    Attributes:
      spec, name: as given.
      saved_as: the class of its snapshots.
    """

    spec: Spec
    saved_as: type[Saved]

    def __init__(
        self, spec: Spec, name: str, *attempts: type[QueuedAttempt[Any]], n_wait_queues: int = 1
    ) -> None:
        self.spec = spec
        self.name = name
        self._attempts = attempts
        self._wait_queues = tuple(WaitQueue() for _ in range(n_wait_queues))
        self._end: OpError | None = None
        self._epoch = 0

    def __str__(self) -> str:
        return f"{self.spec.what} {self.name!r}"

    @abstractmethod
    def clear(self) -> None:
        """Discards the state."""

    @abstractmethod
    def save(self) -> Saved:
        """Returns a copy of the state. Raises as `snapshot`."""

    @abstractmethod
    def load(self, snapshot: Saved) -> None:
        """Replaces the state with a copy of a snapshot of an equal spec.

        Raises:
          InvalidArgumentError: if the snapshot is inconsistent; nothing has changed then.
          ResourceExhaustedError: if there is not enough memory; likewise.
        """

    @property
    def n_waiting(self) -> tuple[int, ...]:
        """The number of attempts in each wait queue."""
        return tuple(map(len, self._wait_queues))

    def submit(self, attempt: Attempt) -> list[Attempt]:
        if attempt.is_complete:
            return []
        if not isinstance(attempt, self._attempts):
            attempt.fail(InvalidArgumentError(f"{self} does not accept {type(attempt).__name__}"))
        elif self._end is not None:
            attempt.fail(self._end)
        else:
            return self._begin(attempt)
        return [attempt]

    def cancel(self, attempt: Attempt, error: OpError) -> list[Attempt]:
        if attempt.is_complete:
            return []
        if isinstance(attempt, self._attempts):
            queue = self._wait_queues[attempt.wait_queue]
            if attempt in queue:
                del queue[attempt]
                attempt.rollback(self)
        attempt.fail(error)
        completed: list[Attempt] = [attempt]
        self._advance_all(completed)
        return completed

    def unread(self, attempt: Attempt) -> list[Attempt]:
        completed: list[Attempt] = []
        if not isinstance(attempt, self._attempts) or attempt.error or self._end:
            return completed
        # An attempt that was never submitted has no epoch, and nothing to give back.
        if getattr(attempt, "epoch", None) == self._epoch:
            attempt.rollback(self)
            self._advance_all(completed)
        return completed

    def reason(self, attempt: Attempt) -> str:
        if attempt.is_complete or not isinstance(attempt, self._attempts):
            return ""
        queue = self._wait_queues[attempt.wait_queue]
        n_ahead = [*queue].index(attempt) if attempt in queue else 0
        behind = f", behind {n_ahead} earlier attempt{'s' * (n_ahead > 1)}" if n_ahead else ""
        return f"waited {attempt.goal(self)}{behind}"

    def waiting(self) -> Iterable[Attempt]:
        return chain.from_iterable(self._wait_queues)

    def snapshot(self) -> Saved:
        self._check_open()
        return self.save()

    def restore(self, snapshot: Snapshot) -> list[Attempt]:
        self._check_open()
        self.load(checked(snapshot, self.saved_as, self.spec, self))
        self._epoch += 1
        for queue in self._wait_queues:
            for attempt in queue:
                attempt.drop()
                attempt.epoch = self._epoch
        completed: list[Attempt] = []
        self._advance_all(completed)
        return completed

    def close(self, error: OpError) -> list[Attempt]:
        if self._end is not None:
            return []
        self._end = error
        waiting = [attempt for queue in self._wait_queues for attempt in queue]
        for queue in self._wait_queues:
            queue.clear()
        for attempt in waiting:
            attempt.rollback(self)
            attempt.fail(error)
        self.clear()
        return [*waiting]

    def _check_open(self) -> None:
        if (end := self._end) is not None:
            raise type(end)(end.message, op=end.op, task=end.task)

    def _begin(self, attempt: QueuedAttempt[Any]) -> list[Attempt]:
        attempt.epoch = self._epoch
        try:
            attempt.start(self)
        except OpError as error:
            attempt.fail(error)
        completed: list[Attempt] = []
        if attempt.is_complete:
            completed.append(attempt)
        else:
            self._wait_queues[attempt.wait_queue][attempt] = None
        self._advance_all(completed)
        return completed

    def _advance_all(self, completed: list[Attempt]) -> None:
        """Advances the heads until none makes progress; appends the attempts that complete."""
        has_changed = True
        while has_changed:
            has_changed = False
            for queue in self._wait_queues:
                if queue and self._advance(queue, completed):
                    has_changed = True

    def _advance(self, queue: WaitQueue, completed: list[Attempt]) -> bool:
        """Advances the head, and the next one if it completes; returns whether anything changed."""
        has_changed = False
        while queue:
            head = next(iter(queue))
            try:
                has_changed |= head.advance(self)
            except OpError as error:
                head.rollback(self)
                head.fail(error)
            if not head.is_complete:
                break
            del queue[head]
            completed.append(head)
            has_changed = True
        return has_changed

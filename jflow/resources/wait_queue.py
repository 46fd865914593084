"""Resources whose attempts wait in FIFO queues, of which only the head may act."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from typing import Any, ClassVar, Generic, TypeVar

from jflow.errors import InvalidArgumentError, OpError
from jflow.resources.attempt import Attempt, Resource

State = TypeVar("State")


class QueuedAttempt(Attempt, ABC, Generic[State]):
    """An attempt that acts on the state of its resource.

    An `OpError` that it raises while it acts is what it fails with.

    Attributes:
      wait_queue: number of the wait queue that it enters.
    """

    __slots__ = ()
    wait_queue: ClassVar[int] = 0

    def start(self, state: State) -> None:
        """Is called once, before it enters the wait queue: refuses what can never succeed.

        An attempt that need not enter the queue completes here.
        """

    @abstractmethod
    def advance(self, state: State) -> bool:
        """Does what can be done now, and completes if that is all; whether it changed anything."""

    def rollback(self, state: State) -> None:
        """Gives back what it took: it fails, or its values were not read. Is idempotent."""


WaitQueue = OrderedDict[QueuedAttempt[Any], None]
"""Attempts in the order in which they came. A dict would take longer and longer to find its first
key as the first ones leave."""


class QueuedResource(Resource):
    """A resource with one wait queue, or several.

    Between two calls no head of a queue can act: `submit`, and whatever takes an attempt away, goes
    round the queues until none of them changes anything.

    Args:
      attempts: the classes of the attempts that it takes.
      n_wait_queues: how many wait queues there are.
    """

    def __init__(self, *attempts: type[QueuedAttempt[Any]], n_wait_queues: int = 1) -> None:
        self._attempts = attempts
        self._wait_queues = tuple(WaitQueue() for _ in range(n_wait_queues))
        self._end: OpError | None = None

    @abstractmethod
    def clear(self) -> None:
        """Forgets what it holds."""

    @property
    def n_waiting(self) -> tuple[int, ...]:
        """How many attempts are in each wait queue."""
        return tuple(map(len, self._wait_queues))

    def submit(self, attempt: Attempt) -> list[Attempt]:
        if attempt.is_complete:
            return []
        if not isinstance(attempt, self._attempts):
            attempt.fail(InvalidArgumentError(f"{self} takes no {type(attempt).__name__}"))
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
        if isinstance(attempt, self._attempts) and attempt.error is None and self._end is None:
            attempt.rollback(self)
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

    def _begin(self, attempt: QueuedAttempt[Any]) -> list[Attempt]:
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
        """Lets the heads act until none of them can; appends the attempts that complete."""
        has_changed = True
        while has_changed:
            has_changed = False
            for queue in self._wait_queues:
                if queue and self._advance(queue, completed):
                    has_changed = True

    def _advance(self, queue: WaitQueue, completed: list[Attempt]) -> bool:
        """Lets the head act, and the next one if it completes; whether anything changed."""
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

"""Resources at which attempts stand in lines, and only who is first in a line may go on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from typing import Any, ClassVar, Generic, TypeVar

from jflow.errors import InvalidArgumentError, OpError
from jflow.resources.attempt import Attempt, Resource

State = TypeVar("State")


class LinedAttempt(Attempt, ABC, Generic[State]):
    """An attempt that knows how to act on the state of its resource.

    What it raises while it acts, an `OpError`, is what it fails with.

    Attributes:
      line: number of the line it stands in.
    """

    __slots__ = ()
    line: ClassVar[int] = 0

    def start(self, state: State) -> None:
        """Is called once, before it stands in line: refuses what can never work.

        An attempt that need not stand in line settles here.
        """

    @abstractmethod
    def advance(self, state: State) -> bool:
        """Does what can be done now, and settles if that is all; returns whether it did a part."""

    def undo(self, state: State) -> None:
        """Gives back what it took: it will fail, or nobody came to have it. May come twice."""


class LinedResource(Resource):
    """A resource with one line, or several, of attempts of its own kind.

    At rest nobody who is first in a line can go on.

    Args:
      kinds: the classes of its attempts.
    """

    def __init__(self, *kinds: type[LinedAttempt[Any]]) -> None:
        self._kinds = kinds
        # Not dicts, which take longer and longer to find their first key as the first ones leave.
        self._lines = tuple(
            OrderedDict[LinedAttempt[Any], None]() for _ in {kind.line for kind in kinds}
        )
        self._end: OpError | None = None

    @abstractmethod
    def clear(self) -> None:
        """Forgets what it holds."""

    @property
    def n_waiting(self) -> tuple[int, ...]:
        """How many attempts stand in each line."""
        return tuple(len(line) for line in self._lines)

    def submit(self, attempt: Attempt) -> list[Attempt]:
        if attempt.is_settled:
            return []
        if not isinstance(attempt, self._kinds):
            attempt.fail(InvalidArgumentError(f"{self} takes no {type(attempt).__name__}"))
        elif self._end is not None:
            attempt.fail(self._end)
        else:
            return self._begin(attempt)
        return [attempt]

    def withdraw(self, attempt: Attempt, error: OpError) -> list[Attempt]:
        if attempt.is_settled:
            return []
        if isinstance(attempt, self._kinds) and attempt in self._lines[attempt.line]:
            del self._lines[attempt.line][attempt]
            attempt.undo(self)
        attempt.fail(error)
        settled: list[Attempt] = [attempt]
        self._go_on(settled)
        return settled

    def restore(self, attempt: Attempt) -> list[Attempt]:
        settled: list[Attempt] = []
        if isinstance(attempt, self._kinds) and attempt.error is None and self._end is None:
            attempt.undo(self)
            self._go_on(settled)
        return settled

    def abandon(self, error: OpError) -> list[Attempt]:
        if self._end is not None:
            return []
        self._end = error
        waiting = [attempt for line in self._lines for attempt in line]
        for line in self._lines:
            line.clear()
        for attempt in waiting:
            attempt.undo(self)
            attempt.fail(error)
        self.clear()
        return [*waiting]

    def _begin(self, attempt: LinedAttempt[Any]) -> list[Attempt]:
        try:
            attempt.start(self)
        except OpError as error:
            attempt.fail(error)
        settled: list[Attempt] = []
        if attempt.is_settled:
            settled.append(attempt)
        else:
            self._lines[attempt.line][attempt] = None
        self._go_on(settled)
        return settled

    def _go_on(self, settled: list[Attempt]) -> None:
        """Lets the first of each line act until none of them can; adds who settled."""
        may_go_on = True
        while may_go_on:
            may_go_on = False
            for line in self._lines:
                if line and self._advance(line, settled):
                    may_go_on = True

    def _advance(self, line: OrderedDict[LinedAttempt[Any], None], settled: list[Attempt]) -> bool:
        """Lets the first of a line act, and those behind if it settles; whether anyone did."""
        has_acted = False
        while line:
            first = next(iter(line))
            try:
                has_acted |= first.advance(self)
            except OpError as error:
                first.undo(self)
                first.fail(error)
            if not first.is_settled:
                break
            del line[first]
            settled.append(first)
            has_acted = True
        return has_acted

"""The order between snapshots of a task and the steps that write its variables more than once.

A program sets all variables that it writes at one moment, so a cut of the variables contains a
program whole or not at all. The part of a step on one task may run several programs that write.
Such a *writing* enters `WritingOrder` before the first of them and leaves it when the step has
ended. A snapshot that has the order closed is taken while none is inside: all have ended, or
written nothing yet.

A writing that is inside may wait for what another task sends, and that may wait for a snapshot
there. So what closes the order limits its wait, ends it and tries again.
"""

from __future__ import annotations

from collections.abc import Iterable

from jflow.errors import OpError
from jflow.state.resources.attempt import Attempt, Resource


class Writing:
    """The part of a step on one task that writes variables more than once.

    Attributes:
      has_left: whether it has left the order, which is for good.
    """

    __slots__ = ("has_left",)

    def __init__(self) -> None:
        self.has_left = False


class EnterWriting(Attempt):
    """Waits until a writing may enter the order."""

    __slots__ = ("writing",)

    def __init__(self, writing: Writing) -> None:
        super().__init__()
        self.writing = writing


class CloseWriting(Attempt):
    """Waits until no writing is inside; closes the order from its submission until it is ended."""


class WritingOrder(Resource):
    """The resource that lets writings in, unless an attempt has closed the order.

    Invariant: a `CloseWriting` is complete only while nothing is inside, and nothing enters while
    there is one. Several may be complete at once.
    """

    def __init__(self) -> None:
        self._inside: set[Writing] = set()
        self._closes: list[CloseWriting] = []
        self._waiting: list[EnterWriting] = []

    def try_enter(self, writing: Writing) -> bool:
        """Lets a writing in; returns False if it must wait.

        One that has left stays outside. Its step is over, also if a program of it has not noticed
        yet: nothing would let it out again, and all snapshots would wait for it.
        """
        if writing in self._inside or writing.has_left:
            return True
        if self._closes:
            return False
        self._inside.add(writing)
        return True

    def submit(self, attempt: Attempt) -> list[Attempt]:
        if isinstance(attempt, CloseWriting):
            self._closes.append(attempt)
            return self._complete_closes()
        assert isinstance(attempt, EnterWriting)
        if not self.try_enter(attempt.writing):
            self._waiting.append(attempt)
            return []
        attempt.succeed()
        return [attempt]

    def leave(self, writing: Writing) -> list[Attempt]:
        """Removes a writing for good, if it is inside. Returns the attempts that this completes."""
        writing.has_left = True
        self._inside.discard(writing)
        return self._complete_closes()

    def cancel(self, attempt: Attempt, error: OpError) -> list[Attempt]:
        if attempt.is_complete:
            return []
        attempt.fail(error)
        if isinstance(attempt, CloseWriting):
            return [attempt, *self._reopen(attempt)]
        assert isinstance(attempt, EnterWriting)
        self._waiting.remove(attempt)
        return [attempt]

    def unread(self, attempt: Attempt) -> list[Attempt]:
        """Reopens the order after a `CloseWriting`; a writing stays inside until its step ends."""
        return self._reopen(attempt) if isinstance(attempt, CloseWriting) else []

    def reason(self, attempt: Attempt) -> str:
        if isinstance(attempt, CloseWriting):
            return f"waited for {len(self._inside)} steps that write several times"
        return "waited for a snapshot of the variables"

    def waiting(self) -> Iterable[Attempt]:
        return [*(close for close in self._closes if not close.is_complete), *self._waiting]

    def _complete_closes(self) -> list[Attempt]:
        if self._inside:
            return []
        completed = [close for close in self._closes if not close.is_complete]
        for close in completed:
            close.succeed()
        return [*completed]

    def _reopen(self, ended: CloseWriting) -> list[Attempt]:
        if ended in self._closes:
            self._closes.remove(ended)
        if self._closes:
            return []
        entered, self._waiting = self._waiting, []
        for enter in entered:
            self.try_enter(enter.writing)
            enter.succeed()
        return [*entered]

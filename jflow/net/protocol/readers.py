"""`Readers`: elects the thread that reads a stream among those that wait on it; no I/O.

A client has no event loop and no thread of its own that reads: the first thread that waits for an
answer becomes the *leader*. It reads until its own answer has come, and wakes the others whose
answers it finds. When it leaves, one that still waits is promoted, and has to be woken.

Invariant: there is a leader whenever there are participants.
"""

from __future__ import annotations

from typing import Generic, TypeVar

W = TypeVar("W")


class Readers(Generic[W]):
    """The threads that wait on one stream. Calls must not be concurrent; nothing here blocks.

    Attributes:
      leader: the one that reads; None if none waits.
    """

    def __init__(self) -> None:
        self.leader: W | None = None
        self._followers: dict[int, W] = {}

    def enter(self, participant: W) -> bool:
        """Adds a participant that begins to wait; returns whether it leads."""
        if self.leader is None:
            self.leader = participant
        elif self.leader is not participant:
            self._followers[id(participant)] = participant
        return self.leader is participant

    def leave(self, participant: W) -> W | None:
        """Removes a participant that stops waiting; returns the new leader, if that changes."""
        if self.leader is not participant:
            self._followers.pop(id(participant), None)
            return None
        if not self._followers:
            self.leader = None
            return None
        self.leader = self._followers.pop(next(iter(self._followers)))
        return self.leader

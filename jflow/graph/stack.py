"""Stacks of defaults, one a thread: the current graph, the current session."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")


class DefaultStack(threading.local, Generic[T]):
    """Values that `with` blocks made the default of this thread, innermost last."""

    def __init__(self) -> None:
        self._entries: list[T] = []

    @property
    def top(self) -> T | None:
        """The innermost default, or None when no block is open on this thread."""
        return self._entries[-1] if self._entries else None

    @property
    def depth(self) -> int:
        """How many blocks are open on this thread."""
        return len(self._entries)

    @contextmanager
    def pushed(self, entry: T) -> Iterator[T]:
        """Makes `entry` the default inside the block.

        Raises:
          AssertionError: if blocks are left in another order than the reverse of entering.
        """
        self._entries.append(entry)
        try:
            yield entry
        finally:
            if self._entries[-1] is not entry:
                raise AssertionError(f"Nesting violated: {entry!r} is not the innermost default")
            self._entries.pop()


class Runner(Protocol):
    """What a default session can do for `tensor.eval()` and `op.run()`."""

    def run(self, fetches: Any, feed_dict: Any = None) -> Any:
        """Runs what `fetches` needs and returns values in its structure."""


sessions: DefaultStack[Runner] = DefaultStack()

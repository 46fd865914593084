"""The context stack, which holds everything that a `with` block makes current.

The current value is that of this thread's innermost block (`top`), else the last one that was set
for all threads (`current`), else the default of the process (`Fallback`). Each kind of value has
its own stack, declared where its type is: graphs, sessions, owners of eager state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")


class _Blocks(threading.local, Generic[T]):
    def __init__(self) -> None:
        self.entries: list[T] = []


class StackBlock(ContextDecorator, Generic[T]):
    """A context manager in which a value is current."""

    def __init__(self, stack: Stack[T], entry: T) -> None:
        self._stack = stack
        self._entry = entry

    def __enter__(self) -> T:
        self._stack.push(self._entry)
        return self._entry

    def __exit__(self, *_: object) -> None:
        self._stack.remove(self._entry)


class Stack(Generic[T]):
    """A stack of current values, per thread and for the whole process.

    Args:
      is_strict: whether it is an error to leave blocks in another order than the reverse of
        entering them. If not, leaving a block removes its value from anywhere in the stack.
    """

    def __init__(self, *, is_strict: bool = True) -> None:
        self._is_strict = is_strict
        self._blocks: _Blocks[T] = _Blocks()
        self._everywhere: tuple[T, ...] = ()
        self._lock = threading.Lock()

    @property
    def top(self) -> T | None:
        """The value of this thread's innermost block; None outside of blocks."""
        entries = self._blocks.entries
        return entries[-1] if entries else None

    @property
    def current(self) -> T | None:
        """The value of this thread's innermost block, else the last one set for all threads."""
        entries = self._blocks.entries or self._everywhere
        return entries[-1] if entries else None

    @property
    def depth(self) -> int:
        """The number of open blocks on this thread."""
        return len(self._blocks.entries)

    def pushed(self, entry: T) -> StackBlock[T]:
        """Returns a context manager that makes `entry` the current value of this thread.

        Leaving it raises AssertionError if the stack is strict and another block is the innermost.
        """
        return StackBlock(self, entry)

    def push(self, entry: T) -> Callable[[], None]:
        """Makes `entry` the current value of this thread, until `remove`.

        Returns:
          A function that any thread can call to remove it, in whatever order; once.
        """
        entries = self._blocks.entries
        entries.append(entry)
        return partial(_discard, entries, entry)

    def remove(self, entry: T) -> None:
        """Removes an entry that `push` has added."""
        entries = self._blocks.entries
        if entries and entries[-1] is entry:
            entries.pop()
        elif self._is_strict:
            raise AssertionError(f"Nesting violated: {entry!r} is not the innermost default")
        else:
            entries[:] = [each for each in entries if each is not entry]

    def add_everywhere(self, entry: T) -> None:
        """Makes `entry` the current value of all threads without an open block."""
        with self._lock:
            self._everywhere = (*self._everywhere, entry)

    def discard_everywhere(self, matches: Callable[[T], bool]) -> None:
        """Removes matching values that were set for all threads."""
        with self._lock:
            self._everywhere = tuple(each for each in self._everywhere if not matches(each))


def _discard(entries: list[T], entry: T) -> None:
    for i in reversed(range(len(entries))):
        if entries[i] is entry:
            del entries[i]
            return


class Fallback(Generic[T]):
    """The default value of the process, created at its first use."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._value: T | None = None
        self._lock = threading.Lock()

    def get(self) -> T:
        """Returns the value, which all threads share."""
        value = self._value
        if value is None:
            with self._lock:
                value = self._value = self._make() if self._value is None else self._value
        return value

    def discard(self) -> None:
        """Discards the value; the next call of `get` creates a new one."""
        with self._lock:
            self._value = None

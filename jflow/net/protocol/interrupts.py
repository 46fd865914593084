"""Defers Ctrl-C (SIGINT) in blocks that must not be left half done.

Python raises KeyboardInterrupt in the main thread between any two of its instructions. A thread of
its own, as gRPC has, is never interrupted; a main thread that reads and writes a stream itself
could lose bytes that it has taken from it. So during a call Ctrl-C is noticed, but raised only
where the main thread waits, or at the end.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, ClassVar, ParamSpec, TypeVar

# The functions inside of `signal`: up to Python 3.11 those around them take 20 µs in a search for
# enum members. Other Pythons than CPython may not have them.
_signals: Any = sys.modules.get("_signal", signal)
_SIGINT = int(signal.SIGINT)

P = ParamSpec("P")
R = TypeVar("R")


class Interrupts:
    """Context manager around code that must not be interrupted; this base class defers nothing.

    Threads other than the main one use this class, because Python never interrupts them.
    """

    def __enter__(self) -> Interrupts:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def waiting(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls a function that interrupts may end at once."""
        return function(*args, **kwargs)


class _MainInterrupts(Interrupts):
    """Defers the interrupts of the main thread.

    Attributes:
      innermost: the block that the main thread is in; no other thread reads or writes it.
    """

    innermost: ClassVar[_MainInterrupts | None] = None

    def __init__(self) -> None:
        self._outer: _MainInterrupts | None = None
        self._handler: Any = None
        self._noticed: list[FrameType | None] = []
        self.is_waiting = False

    def __enter__(self) -> Interrupts:
        handler = _signals.getsignal(_SIGINT)
        if callable(handler):  # else it raises nothing
            self._handler = handler
            _signals.signal(_SIGINT, self._on_signal)
        self._outer, _MainInterrupts.innermost = _MainInterrupts.innermost, self
        return self

    def __exit__(self, *error: object) -> None:
        _MainInterrupts.innermost = self._outer
        if self._handler is not None:
            _signals.signal(_SIGINT, self._handler)
            if self._noticed:
                self._raise_noticed()

    def waiting(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        self.is_waiting = True
        try:
            if self._noticed:
                self._raise_noticed()
            return function(*args, **kwargs)
        finally:
            self.is_waiting = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.is_waiting:
            self._handler(number, frame)
        else:
            self._noticed.append(frame)

    def _raise_noticed(self) -> None:
        frame = self._noticed.pop()
        self._noticed.clear()
        self._handler(_SIGINT, frame)


class _Nested(Interrupts):
    """A context inside another one of the main thread, which does the deferring."""

    def __enter__(self) -> Interrupts:
        return _MainInterrupts.innermost or self


_NONE = Interrupts()


def deferred_interrupts() -> Interrupts:
    """Returns a context manager around code that must not be interrupted; may be nested."""
    if threading.get_ident() != threading.main_thread().ident:
        return _NONE
    innermost = _MainInterrupts.innermost
    is_deferred = innermost is not None and not innermost.is_waiting
    return _Nested() if is_deferred else _MainInterrupts()

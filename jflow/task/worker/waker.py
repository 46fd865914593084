"""`Waker`: wakes a waiter on an event loop, from any thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from typing import Any

from jflow.state.resources import Attempt, Cell

SubmittedWait = tuple[Cell, Attempt, asyncio.Future[Any]]
"""An attempt that was submitted and waits, its cell, and what a `Waker` completes with it."""


class Waker:
    """Wakes a waiter on an event loop; thread-safe, and does nothing if the wait is over.

    Attributes:
      step: the number of the step that waits.
      interpreter: the interpreter that waits.
    """

    def __init__(
        self, waiter: asyncio.Future[Any], step: int, interpreter: Generator[Any, Any, Any]
    ) -> None:
        self.step = step
        self.interpreter = interpreter
        self._waiter = waiter
        self._thread = threading.get_ident()

    def __call__(self, _: Attempt) -> None:
        if threading.get_ident() == self._thread:
            self._wake()
        else:
            self._waiter.get_loop().call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if not self._waiter.done():
            self._waiter.set_result(None)

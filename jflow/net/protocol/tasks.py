"""`TaskSet`: asyncio tasks that outlive the coroutine that started them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class TaskSet:
    """Holds references to tasks until they are done; the event loop holds weak ones only."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine that must not raise."""
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        """Cancels those that are not done."""
        for task in self._tasks:
            task.cancel()

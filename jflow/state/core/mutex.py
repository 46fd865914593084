"""`Mutex`: coroutines of the core that run one at a time."""

from __future__ import annotations

from collections import deque

from jflow.base.drivers import CoreDriver, Event


class Mutex:
    """A block that one coroutine is in at a time, in the order in which they came.

    Args:
      driver: runs them.
    """

    def __init__(self, driver: CoreDriver) -> None:
        self._driver = driver
        self._is_taken = False
        self._waiting: deque[Event] = deque()

    async def __aenter__(self) -> None:
        while self._is_taken:
            is_free = self._driver.event()
            self._waiting.append(is_free)
            try:
                await is_free.wait()
            except BaseException:
                if is_free.is_set():
                    self._next()
                else:
                    self._waiting.remove(is_free)
                raise
        self._is_taken = True

    async def __aexit__(self, *_: object) -> None:
        self._is_taken = False
        self._next()

    def _next(self) -> None:
        if self._waiting:
            self._waiting.popleft().set()

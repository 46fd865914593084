"""Every driver, as tests of the core run it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from jflow.base.deadline import Deadline
from jflow.base.drivers import CoreDriver, Fibers, LoopDriver, ThreadDriver

PATIENCE_S = 60.0


class SimulatedDriver(Fibers):
    """Runs fibers in an order that a seed decides, in a time that is not real.

    Args:
      seed: decides the order, and random numbers.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def wall_time(self) -> float:
        return self.time

    def random_bits(self, k: int) -> int:
        return self.random.getrandbits(k)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Runs a coroutine, and what it starts, to the end; returns its result."""
        main = self.start(coroutine)
        self.run_until(main.done)
        return main.result()

    def run_until(self, is_over: Callable[[], bool]) -> None:
        """Runs fibers until a condition holds, or nothing can go on.

        Raises:
          AssertionError: if nothing can go on, and it does not hold.
        """
        while not is_over():
            if not self.step_any():
                at = self.next_timer()
                assert at is not None, "every coroutine waits for another one"
                self.time = max(self.time, at)
                self.fire_timers()

    def step_any(self) -> bool:
        """Runs one of the fibers that can go on; returns whether there was one."""
        ready = self.group.ready
        if not ready:
            return False
        ready.rotate(-self.random.randrange(len(ready)))
        self.step(ready.popleft())
        return True


def on_loop(use: Callable[[CoreDriver], Coroutine[Any, Any, Any]]) -> Any:
    """Runs a coroutine of the core on an event loop."""

    async def run() -> Any:
        with ThreadPoolExecutor(2) as threads:
            return await asyncio.wait_for(use(LoopDriver(threads)), PATIENCE_S)

    return asyncio.run(run())


def in_thread(use: Callable[[CoreDriver], Coroutine[Any, Any, Any]]) -> Any:
    """Runs a coroutine of the core in this thread."""
    driver = ThreadDriver()
    return driver.run(use(driver), Deadline(PATIENCE_S), "testing")


def simulated(use: Callable[[CoreDriver], Coroutine[Any, Any, Any]]) -> Any:
    """Runs a coroutine of the core in a simulation."""
    driver = SimulatedDriver()
    return driver.run(use(driver))


DRIVERS = {"loop": on_loop, "thread": in_thread, "simulated": simulated}

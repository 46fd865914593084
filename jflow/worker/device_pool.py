"""Threads for programs that may take long, and how many of them a device takes at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import jax

N_LONG = 24
"""How many programs that may take long run on a device at once; others wait until one ends.

XLA accepts 32 programs on a device, and a thread that starts another one is stuck until one ends.
The rest is for programs that are known to be quick, which the event loop starts.
"""

_N_WAITING = 64
"""How many threads more there may be, which wait for values that a device is about to compute."""


class DevicePool:
    """Runs programs that cannot be interrupted; every method must be called on the event loop.

    Programs have threads of their own, so that all other work goes on even if many programs never
    end.

    Args:
      devices: the devices of the task.
      name: for the threads.
      initializer: what each thread calls first.
    """

    def __init__(
        self,
        devices: Collection[jax.Device],
        name: str = "jflow program",
        initializer: Callable[[], object] | None = None,
    ) -> None:
        self._slots = {device: asyncio.Semaphore(N_LONG) for device in devices}
        self._threads = ThreadPoolExecutor(
            N_LONG * len(self._slots) + _N_WAITING,
            thread_name_prefix=name,
            initializer=initializer,
        )

    async def start(self, device: jax.Device, work: Callable[[], Any]) -> Future[Any]:
        """Starts work in a thread as soon as the device takes it."""
        slots = self._slots[device]
        await slots.acquire()
        loop = asyncio.get_running_loop()
        try:
            job = self._threads.submit(work)
        except BaseException:
            slots.release()
            raise
        # At its end, not when it is cancelled: the device goes on with it.
        job.add_done_callback(lambda _: _tell(loop, slots.release))
        return job

    async def wait(self, value: jax.Array) -> None:
        """Waits until a device has computed a value."""
        await asyncio.get_running_loop().run_in_executor(
            self._threads, partial(jax.block_until_ready, value)
        )

    def shutdown(self) -> None:
        """Starts nothing more; what runs cannot be stopped and is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _tell(loop: asyncio.AbstractEventLoop, release: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(release)

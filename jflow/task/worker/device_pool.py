"""`DevicePool`: threads for long programs; `is_quick`: which programs need none."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import jax
from jax.sharding import Mesh

from jflow.plan.xla.hardware import DeviceOrMesh, devices_of
from jflow.plan.xla.mesh_program import Compilation
from jflow.task.execution.device_order import DEVICE_ORDER, DeviceUse
from jflow.task.execution.linked import LinkedCall, LinkedRun

QUICK_S = 200e-6
"""The longest time that a program may take on the event loop, which does nothing else then."""

ALONE_S = 2e-3
"""The same where nothing else waits for the loop: to wake a thread, and then the loop again, takes
longer than others would wait that came meanwhile."""


def timed(
    linked: LinkedRun | LinkedCall, work: Callable[..., object], *args: object, n_steps: int = 1
) -> None:
    """Does the work of an instruction, in several steps, and records the duration of one."""
    start = time.perf_counter()
    work(*args)
    linked.latency.note((time.perf_counter() - start) / n_steps)


def is_quick(run: LinkedRun, is_alone: Callable[[], bool]) -> bool:
    """Whether a program is quick enough to run on the event loop.

    XLA runs some programs to their end in the thread that starts them. A loop with a computed
    number of iterations may take minutes even if it was quick the last time (`may_be_quick`).

    Args:
      run: the program.
      is_alone: whether no other plan runs, and this one has no message in flight.
    """
    seconds = run.latency.seconds
    if seconds > ALONE_S or not run.may_be_quick:
        return False
    return seconds <= QUICK_S or is_alone()


N_LONG = 24
"""How many long programs run on a device at once; further ones wait until one of them ends.

XLA accepts 32 programs per device; a thread that starts a 33rd blocks until one ends. The event
loop starts quick programs itself and must never block there, so the difference is left to them.
"""

_N_WAITING = 64
"""Additional threads, which wait for values that a device is computing."""


class DevicePool:
    """Runs programs, which cannot be interrupted, in threads. On the event loop only.

    Programs have threads of their own, so that other work proceeds even if many programs never
    terminate. On Linux these are batch threads: one that starts does not take the processor from
    the event loop, which sends what others wait for before it rests. They get the same share.

    Args:
      devices: the devices of the task.
      name: prefix of the threads' names.
      initializer: each thread calls it first.

    Attributes:
      ended: called when no program of a step runs any more, with the step.
    """

    def __init__(
        self,
        devices: Collection[jax.Device],
        name: str = "jflow program",
        initializer: Callable[[], object] | None = None,
    ) -> None:
        self.ended: Callable[[int], object] = lambda _: None
        self._slots = {device: _Slots() for device in devices}
        self._queued: dict[DeviceOrMesh, dict[asyncio.Future[None], int]] = {}
        self._running: dict[int, list[DeviceOrMesh]] = {}
        self._threads = ThreadPoolExecutor(
            N_LONG * len(devices) + _N_WAITING,
            thread_name_prefix=name,
            initializer=partial(_begin, initializer),
        )

    async def start(
        self, device: DeviceOrMesh, work: Callable[[], Any], step: int = 0
    ) -> Future[Any]:
        """Runs the work of a step in a thread, once the device has a free slot.

        On a mesh it begins once all devices of the mesh are free.

        Raises:
          OpError: that of `fail_waits`.
        """
        use, slots = await self._granted(device, step)
        loop = asyncio.get_running_loop()
        try:
            job = self._threads.submit(work)
        except BaseException:
            DEVICE_ORDER.end(use)
            _release(slots)
            raise
        self._running.setdefault(step, []).append(device)

        # The devices are free when the work ends, not when its caller is cancelled: they still run
        # it then.
        def end(_: Future[Any]) -> None:
            DEVICE_ORDER.end(use)  # here, as the loop may be closed
            _tell(loop, partial(self._end_job, slots, device, step))

        job.add_done_callback(end)
        return job

    async def _granted(self, device: DeviceOrMesh, step: int) -> tuple[DeviceUse, _Slots | None]:
        """Waits until a program may use a device; returns its use and the slots of the device."""
        # A mesh has one program at a time, and needs no slots.
        slots = None if isinstance(device, Mesh) else self._slots[device]
        if slots is not None and not slots.try_acquire():
            with self._queueing(device, step) as waiter:
                await slots.acquire(waiter)
        try:
            return await self._begin_use(device, step), slots
        except BaseException:
            _release(slots)
            raise

    async def _begin_use(self, device: DeviceOrMesh, step: int) -> DeviceUse:
        """Returns the use of a device by a program, once it may start."""
        use, loop = DeviceUse(device), asyncio.get_running_loop()
        with self._queueing(device, step) as waiter:
            try:
                if not DEVICE_ORDER.begin(use, lambda: _tell(loop, partial(_wake, waiter))):
                    await waiter
            except BaseException:
                DEVICE_ORDER.end(use)
                raise
        return use

    @contextmanager
    def _queueing(self, device: DeviceOrMesh, step: int) -> Iterator[asyncio.Future[None]]:
        """Context manager of a wait for a device; yields a future, which `fail_waits` may end."""
        queued = self._queued.setdefault(device, {})
        waiter = asyncio.get_running_loop().create_future()
        queued[waiter] = step
        try:
            yield waiter
        finally:
            del queued[waiter]
            if not queued and self._queued.get(device) is queued:
                del self._queued[device]

    def fail_waits(
        self, devices: Collection[jax.Device], error: Callable[[], BaseException]
    ) -> None:
        """Ends all waits for devices, and for meshes of them, with an error."""
        for device, queued in self._queued.items():
            if any(one in devices for one in devices_of(device)):
                for waiter in queued:
                    if not waiter.done():
                        waiter.set_exception(error())

    def running(self, step: int) -> Collection[DeviceOrMesh]:
        """Returns the devices and meshes that run work of a step, perhaps after it has ended."""
        return self._running.get(step, ())

    def _end_job(self, slots: _Slots | None, device: DeviceOrMesh, step: int) -> None:
        _release(slots)
        running = self._running[step]
        running.remove(device)
        if not running:
            del self._running[step]
            self.ended(step)

    def queued(self, device: DeviceOrMesh) -> Collection[int]:
        """Returns the steps whose work waits for a free slot of a device."""
        return self._queued.get(device, {}).values()

    async def compile(self, compilation: Compilation) -> None:
        """Compiles a program in a thread, or waits for the one that does, without a thread."""
        if compilation.future is not None:
            await asyncio.wait([asyncio.wrap_future(compilation.future)])
        await asyncio.get_running_loop().run_in_executor(self._threads, compilation.make)

    async def wait(self, value: jax.Array) -> None:
        """Waits until a device has computed a value."""
        await asyncio.get_running_loop().run_in_executor(
            self._threads, partial(jax.block_until_ready, value)
        )

    def shutdown(self) -> None:
        """Starts no further work; running programs cannot be stopped and are not awaited."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Slots:
    """The free slots of a device, and the waits for them, which others can end with an error."""

    def __init__(self) -> None:
        self._n_free = N_LONG
        self._waiters: deque[asyncio.Future[None]] = deque()

    def try_acquire(self) -> bool:
        """Takes a slot; returns False if none is free."""
        if not self._n_free:
            return False
        self._n_free -= 1
        return True

    async def acquire(self, waiter: asyncio.Future[None]) -> None:
        """Waits for a slot by a new future, in the order of the calls."""
        self._waiters.append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.release()  # it was given a slot just before its caller was cancelled
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
            raise

    def release(self) -> None:
        """Frees a slot, or gives it to the first that waits."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._n_free += 1


def _release(slots: _Slots | None) -> None:
    if slots is not None:
        slots.release()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _begin(initializer: Callable[[], object] | None) -> None:
    if sys.platform == "linux":
        # A sandbox may forbid it.
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    if initializer is not None:
        initializer()


def _tell(loop: asyncio.AbstractEventLoop, release: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(release)

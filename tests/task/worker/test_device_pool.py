"""Threads for programs that cannot be interrupted, and how many of them a device takes."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jflow.task.worker.device_pool import N_LONG, DevicePool

ONE, TWO = jax.local_devices(backend="cpu")[:2]


def run(use: Callable[[DevicePool, threading.Event], Awaitable[Any]]) -> None:
    """Uses devices, and an event that ends what runs on them."""
    end = threading.Event()

    async def main() -> None:
        devices = DevicePool([ONE, TWO])
        try:
            await asyncio.wait_for(use(devices, end), 20)
        finally:
            end.set()
            devices.shutdown()

    asyncio.run(main())


def test_a_device_that_takes_no_more_keeps_only_its_own_programs_waiting() -> None:
    async def use(devices: DevicePool, end: threading.Event) -> None:
        jobs = [await devices.start(ONE, end.wait) for _ in range(N_LONG)]
        waiting = asyncio.ensure_future(devices.start(ONE, lambda: "later"))
        other = await devices.start(TWO, lambda: "other")
        assert await asyncio.wrap_future(other) == "other"
        await devices.wait(jnp.ones(3))
        assert not waiting.done()
        end.set()
        assert await asyncio.wrap_future(await waiting) == "later"
        assert all([await asyncio.wrap_future(job) for job in jobs])

    run(use)


def test_a_program_keeps_its_place_until_it_ends_though_it_was_cancelled() -> None:
    async def use(devices: DevicePool, end: threading.Event) -> None:
        jobs = [await devices.start(ONE, end.wait) for _ in range(N_LONG)]
        while not all(job.running() for job in jobs):
            await asyncio.sleep(0.001)
        assert not any(job.cancel() for job in jobs), "they run"
        given_up = asyncio.ensure_future(devices.start(ONE, end.wait))
        await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        waiting = asyncio.ensure_future(devices.start(ONE, lambda: "later"))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        end.set()
        assert await asyncio.wrap_future(await waiting) == "later"

    run(use)


@pytest.mark.skipif(sys.platform != "linux", reason="batch threads are Linux's")
def test_programs_run_in_batch_threads_so_that_starting_one_delays_no_message() -> None:
    async def use(devices: DevicePool, end: threading.Event) -> None:
        job = await devices.start(ONE, lambda: os.sched_getscheduler(0))
        assert await asyncio.wrap_future(job) == os.SCHED_BATCH
        assert os.sched_getscheduler(0) != os.SCHED_BATCH, "the loop's own thread is as it was"

    run(use)

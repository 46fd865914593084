"""Waits that end when there is no progress, not when a machine is slow."""

from __future__ import annotations

import asyncio
import itertools

import pytest

import jflow.launch.testing.waiting as module
from jflow.testing import VirtualClock, cpu_time, wait_until, wait_until_async


def test_a_wait_goes_on_while_there_is_progress() -> None:
    clock, steps = VirtualClock(), itertools.count()
    with clock.installed(module):
        wait_until(lambda: clock.now() > 1100.0, patience=1.0, progress=lambda: next(steps))
        with pytest.raises(AssertionError, match=r"the answer did not come true in \d+\.\d s"):
            wait_until(lambda: False, "the answer", patience=1.0, progress=lambda: "the same")
        assert 1101.0 < clock.now() < 1103.0
        done_at = clock.now() + 0.5
        wait_until(lambda: clock.now() > done_at, patience=1.0)


def test_a_wait_on_an_event_loop_lets_others_run() -> None:
    async def main() -> None:
        event = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01, event.set)
        await wait_until_async(event.is_set)
        with pytest.raises(AssertionError, match="without progress"):
            await wait_until_async(lambda: False, patience=0.01)

    asyncio.run(main())


def test_the_cpu_time_of_a_process_that_is_gone_is_none() -> None:
    assert cpu_time(2**22 + 1) == 0.0

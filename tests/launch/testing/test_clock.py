"""The virtual clock: timers, event loops and modules in its time."""

from __future__ import annotations

import asyncio
import time

import pytest

import jflow.base.deadline.deadline as module
from jflow.base.deadline import Deadline
from jflow.errors import DeadlineExceededError
from jflow.testing import VirtualClock


def test_timers_are_called_at_their_time_in_their_order() -> None:
    clock, called = VirtualClock(start=10.0), []

    def note(name: str) -> None:
        called.append((name, clock.now()))

    clock.call_later(2.0, lambda: note("b"))
    clock.call_later(1.0, lambda: (note("a"), clock.call_later(0.5, lambda: note("from a"))))
    clock.call_later(2.0, lambda: note("c"))
    clock.call_later(1.2, lambda: note("never")).cancel()
    clock.call_later(-1.0, lambda: note("at once"))
    clock.advance(0.0)
    assert called == [("at once", 10.0)]
    clock.advance(2.0)
    assert called[1:] == [("a", 11.0), ("from a", 11.5), ("b", 12.0), ("c", 12.0)]
    clock.advance(5.0)
    assert clock.now() == 17.0
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(-1.0)


def test_an_hour_on_an_event_loop_takes_no_time() -> None:
    clock, begun, order = VirtualClock(), time.monotonic(), []

    async def sleep(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        order.append((name, asyncio.get_running_loop().time() - 1000.0))

    async def main() -> str:
        await asyncio.gather(sleep("long", 3600.0), sleep("short", 60.0))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(7200.0):
                await asyncio.Event().wait()
        return "done"

    assert clock.run(main()) == "done"
    assert order == [("short", 60.0), ("long", 3600.0)]
    assert clock.now() == 1000.0 + 3600.0 + 7200.0
    assert time.monotonic() - begun < 60


def test_a_wait_for_what_does_not_come_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="every coroutine waits"):
        VirtualClock().run(asyncio.Event().wait())


def test_a_module_reads_the_clock_and_sleeps_in_it() -> None:
    clock, real = VirtualClock(), module.time
    with clock.installed(module):
        deadline = Deadline(60.0)
        clock.advance(45.0)
        assert deadline.remaining() == 15.0
        module.time.sleep(20.0)
        assert deadline.remaining() == 0.0
        with pytest.raises(DeadlineExceededError, match="60 s"):
            deadline.check("waiting")
    assert module.time is real

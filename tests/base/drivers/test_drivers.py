"""What every driver of the core does alike."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from jflow.base.drivers import CoreDriver
from tests.base.drivers.driven import DRIVERS


@pytest.fixture(params=DRIVERS)
def run(request: pytest.FixtureRequest) -> Any:
    return DRIVERS[request.param]


def test_a_coroutine_goes_on_when_its_event_happens(run: Any) -> None:
    async def use(driver: CoreDriver) -> list[str]:
        seen, event = [], driver.event()

        async def wait() -> None:
            await event.wait()
            seen.append("woken")

        job = driver.start(wait())
        await driver.sleep(0.01)
        seen.append("set")
        assert not event.is_set()
        assert not job.done()
        event.set()
        await job
        await event.wait()  # it has happened already
        return seen

    assert run(use) == ["set", "woken"]


def test_an_event_may_be_set_by_another_thread(run: Any) -> None:
    async def use(driver: CoreDriver) -> bool:
        event = driver.event()
        setting = threading.Thread(target=event.set_threadsafe)
        setting.start()
        await driver.work(setting.join)
        await event.wait()
        return event.is_set()

    assert run(use)


def test_timers_fire_in_their_order_unless_they_are_cancelled(run: Any) -> None:
    async def use(driver: CoreDriver) -> list[str]:
        seen: list[str] = []
        driver.later(0.2, seen.append, "second")
        driver.later(0.001, seen.append, "first")
        driver.later(0.1, seen.append, "never").cancel()
        await driver.sleep(0.3)
        return seen

    assert run(use) == ["first", "second"]


def test_a_limit_ends_what_takes_longer_and_nothing_else(run: Any) -> None:
    async def use(driver: CoreDriver) -> str:
        async with driver.limit(30.0):
            await driver.sleep(0.001)
        async with driver.limit(None):
            await driver.sleep(0.001)
        try:
            async with driver.limit(0.01):
                await driver.event().wait()
        except TimeoutError:
            await driver.sleep(0.02)  # it ends nothing after the block
            return "over"
        return "not over"

    assert run(use) == "over"


def test_a_cancelled_coroutine_cleans_up_where_it_waits(run: Any) -> None:
    async def use(driver: CoreDriver) -> list[str]:
        seen = []

        async def wait() -> None:
            try:
                await driver.event().wait()
            except driver.Cancelled:
                seen.append("cancelled")
                raise
            finally:
                await driver.sleep(0.001)
                seen.append("cleaned up")

        job = driver.start(wait())
        await driver.sleep(0.001)
        job.cancel()
        while not job.done():
            await driver.sleep(0.001)
        job.cancel()  # does nothing
        return seen

    assert run(use) == ["cancelled", "cleaned up"]


def test_a_coroutine_that_cancels_itself_ends_at_its_next_wait(run: Any) -> None:
    async def use(driver: CoreDriver) -> list[str]:
        seen = []

        async def wait() -> None:
            driver.current().cancel()
            seen.append("goes on")
            await driver.sleep(0.001)
            seen.append("never")

        job = driver.start(wait())
        while not job.done():
            await driver.sleep(0.001)
        return seen

    assert run(use) == ["goes on"]


def test_all_of_gives_results_in_order_or_the_first_error_and_cancels_the_rest(run: Any) -> None:
    async def use(driver: CoreDriver) -> tuple[list[int], str, list[str]]:
        ended: list[str] = []

        async def after(seconds: float, value: int) -> int:
            try:
                await driver.sleep(seconds)
            except driver.Cancelled:
                ended.append("cancelled")
                raise
            if value < 0:
                raise ValueError(str(value))
            return value

        found = await driver.all_of([after(0.02, 1), after(0.001, 2)])
        assert await driver.all_of([]) == []
        try:
            await driver.all_of([after(30.0, 3), after(0.001, -1), after(20.0, -2)])
        except ValueError as error:
            return found, str(error), ended
        raise AssertionError

    assert run(use) == ([1, 2], "-1", ["cancelled", "cancelled"])


def test_work_returns_raises_and_goes_on_if_its_coroutine_is_cancelled(run: Any) -> None:
    async def use(driver: CoreDriver) -> list[str]:
        seen = [await driver.work("{}{more}".format, "one", more="!")]
        try:
            await driver.work(int, "x")
        except ValueError:
            seen.append("raised")
        return seen

    assert run(use) == ["one!", "raised"]


def test_a_coroutine_that_must_complete_is_not_cancelled(run: Any) -> None:
    async def use(driver: CoreDriver) -> list[str]:
        seen, may_end = [], driver.event()

        async def apply() -> str:
            await may_end.wait()
            return "applied"

        async def call(*, must: bool) -> None:
            try:
                seen.append(await driver.shield(apply(), lambda: must))
            except driver.Cancelled:
                seen.append("cancelled")

        for must in (True, False):
            may_end = driver.event()
            job = driver.start(call(must=must))
            await driver.sleep(0.001)
            job.cancel()
            await driver.sleep(0.001)
            may_end.set()
            while not job.done():
                await driver.sleep(0.001)
        return seen

    assert run(use) == ["applied", "cancelled"]

"""How the threads of callers run the core: together, under one lock, until they are interrupted."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from jflow.base.deadline import Deadline
from jflow.base.drivers import ThreadDriver
from jflow.base.drivers.driver import Mutex
from jflow.errors import DeadlineExceededError
from jflow.testing import PATIENCE_S, wait_until

N_THREADS = 8


def test_threads_exclude_and_wake_each_other() -> None:
    driver = ThreadDriver()
    mutex, n_inside, most, count = Mutex(driver), [0], [0], [0]

    async def use() -> None:
        async with mutex:
            n_inside[0] += 1
            most[0] = max(most[0], n_inside[0])
            await driver.work(time.sleep, 0.0001)
            await driver.sleep(0.0001)
            n_inside[0] -= 1
            count[0] += 1

    with ThreadPoolExecutor(N_THREADS) as threads:
        calls = [
            threads.submit(driver.run, use(), Deadline(PATIENCE_S), "waiting for the mutex")
            for _ in range(40)
        ]
        for call in calls:
            call.result()
    assert (most, count, n_inside) == ([1], [40], [0])


def test_nothing_is_slept_or_performed_under_the_lock() -> None:
    driver = ThreadDriver()
    locked: list[bool] = []

    async def use() -> None:
        assert driver.lock.locked()
        await driver.work(lambda: locked.append(driver.lock.locked()))
        driver.later(0.02, lambda: None)
        await driver.sleep(0.03)

    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(driver.run, use())
        while not call.done():
            assert driver.lock.acquire(timeout=PATIENCE_S)
            driver.lock.release()
        call.result()
    assert locked == [False]


def test_a_call_may_be_made_in_the_work_of_another() -> None:
    driver = ThreadDriver()

    async def inner() -> int:
        await driver.sleep(0.001)
        return 1

    async def outer() -> int:
        return 1 + await driver.work(driver.run, inner())

    assert driver.run(outer()) == 2


def test_a_deadline_ends_what_waits_and_not_what_works() -> None:
    driver = ThreadDriver()
    cleaned_up: list[str] = []

    async def use() -> None:
        try:
            await driver.event().wait()
        finally:
            cleaned_up.append("cleaned up")

    with pytest.raises(
        DeadlineExceededError, match="timeout of 10 ms and was cancelled while waiting for nothing"
    ):
        driver.run(use(), Deadline(0.01), "waiting for nothing")
    assert cleaned_up == ["cleaned up"]

    async def work() -> str:
        return await driver.work(lambda: time.sleep(0.05) or "done")

    assert driver.run(work(), Deadline(0.01), "working") == "done"


def test_an_interrupt_undoes_what_had_begun_and_frees_the_lock() -> None:
    driver = ThreadDriver()
    cleaned_up: list[str] = []

    async def child() -> None:
        try:
            await driver.event().wait()
        finally:
            cleaned_up.append("child")

    async def use() -> None:
        try:
            await driver.all_of([child()])
        finally:
            cleaned_up.append("call")

    def interrupt() -> None:
        wait_until(lambda: driver._timers or True, "it sleeps")
        time.sleep(0.05)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        driver.run(use())
    assert sorted(cleaned_up) == ["call", "child"]
    assert driver.run(_one()) == 1


def test_an_error_of_work_is_the_coroutines_to_handle_also_an_interrupt() -> None:
    driver = ThreadDriver()
    seen: list[str] = []

    def interrupted() -> None:
        raise KeyboardInterrupt

    async def use() -> None:
        try:
            await driver.work(interrupted)
        except KeyboardInterrupt:
            seen.append("seen")
            raise

    with pytest.raises(KeyboardInterrupt):
        driver.run(use())
    assert seen == ["seen"]
    assert not driver.lock.locked()


async def _one() -> int:
    return 1


def test_what_fails_in_the_background_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    driver = ThreadDriver()

    async def fail() -> None:
        raise ValueError("a fault")

    async def use() -> None:
        driver.start(fail())
        failing = driver.start(fail())
        with pytest.raises(ValueError, match="a fault"):
            await failing

    driver.run(use())
    assert caplog.text.count("failed, and nothing waits for it") == 1


def test_an_interrupt_is_not_taken_for_a_limit_that_passes_at_once() -> None:
    driver = ThreadDriver()

    async def use() -> None:
        try:
            async with driver.limit(0.05):
                await driver.event().wait()
        except TimeoutError:
            await driver.event().wait()  # for ever

    def interrupt() -> None:
        time.sleep(0.05)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        driver.run(use())
    assert driver.run(_one()) == 1


def test_cancelled_timers_are_dropped() -> None:
    driver = ThreadDriver()

    async def use() -> None:
        for _ in range(1000):
            driver.later(3600.0, print).cancel()
        assert len(driver._timers) < 200

    driver.run(use())

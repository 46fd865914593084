"""One run of a plan: what it keeps until its programs end, and errors after a cancellation."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jflow.cluster import Device, Task
from jflow.errors import DataLossError, UnavailableError
from jflow.execution import link
from jflow.plan import Plan, Program, Run, VariableKey, VariableSpec
from jflow.resources import Containers
from jflow.testing import PATIENCE_S
from jflow.worker.context import WorkerContext
from jflow.worker.device_pool import DevicePool
from jflow.worker.plan_run import _PlanRun, run_plan
from jflow.worker.rendezvous import Rendezvous
from tests.variables import get_variable, set_variable

TASK = Task("ps", 0)
CPU = Device(TASK, "CPU", 0)
HERE = jax.local_devices(backend="cpu")[0]
X = VariableSpec(VariableKey("", "x"), "float32", (3,))


class Nowhere:
    """A transport that is not used."""

    async def deliver(self, *_: Any) -> None:
        raise AssertionError


def test_a_value_stays_as_it_is_until_the_program_of_a_cancelled_step_has_ended() -> None:
    running, end = threading.Event(), threading.Event()

    def program(value: Any) -> list[Any]:
        running.set()
        assert end.wait(PATIENCE_S)
        return [value]

    plan = Plan(
        CPU,
        2,
        (X,),
        (
            (Run(None, before=((0, 0),)),),
            (Run(Program("long"), inputs=(0,), outputs=(1,)),),
        ),
    )
    containers = Containers(TASK)
    set_variable(containers, CPU, X, jnp.ones(3))
    linked = link(plan, HERE, lambda _: program, {}.__getitem__)

    def leases() -> int:
        return len(get_variable(containers, CPU, X).buffer.leases)

    async def main() -> None:
        with ThreadPoolExecutor(1) as threads:
            devices = DevicePool([HERE])
            context = WorkerContext(TASK, containers, Rendezvous(), Nowhere(), threads, devices)
            step = asyncio.ensure_future(run_plan(linked, 1, {}, context))
            while not running.is_set():
                await asyncio.sleep(0.001)
            step.cancel()
            with pytest.raises(asyncio.CancelledError):
                await step
            assert leases() == 1
            end.set()
            while leases():
                await asyncio.sleep(0.001)
            devices.shutdown()

    asyncio.run(asyncio.wait_for(main(), 20))


def run_unseen(use: Callable[[ThreadPoolExecutor], Coroutine[Any, Any, None]]) -> None:
    """Runs a test on a loop; no error may be left that nothing has looked at."""
    unseen: list[dict[str, Any]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unseen.append(context))
        with ThreadPoolExecutor(1) as threads:
            await use(threads)
        gc.collect()

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
    assert unseen == []


def test_a_read_that_fails_after_its_step_was_cancelled_is_not_logged() -> None:
    reading, end = threading.Event(), threading.Event()

    def work() -> Generator[Any, None, None]:
        reading.set()
        assert end.wait(PATIENCE_S)
        raise DataLossError("a record is damaged")
        yield

    async def use(threads: ThreadPoolExecutor) -> None:
        run: Any = SimpleNamespace(_context=SimpleNamespace(threads=threads))
        step = asyncio.ensure_future(_PlanRun._next_in_thread(run, work(), []))
        while not reading.is_set():
            await asyncio.sleep(0.001)
        step.cancel()
        await asyncio.sleep(0)
        end.set()
        with pytest.raises(asyncio.CancelledError):
            await step

    run_unseen(use)


def test_a_wait_that_fails_as_its_step_is_cancelled_is_not_logged() -> None:
    async def use(_: ThreadPoolExecutor) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def wait(awaited: asyncio.Future[None]) -> None:
            await awaited

        run: Any = SimpleNamespace(_wait=wait)
        other: Any = SimpleNamespace(must_yield=lambda _: False)
        step = asyncio.ensure_future(_PlanRun._wait_by_age(run, waiter, other, other))
        await asyncio.sleep(0.001)
        waiter.set_exception(UnavailableError("its sender was lost"))
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step

    run_unseen(use)

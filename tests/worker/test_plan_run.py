"""One run of a plan: what it keeps of its variables until its programs have ended."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jflow.cluster import Device, Task
from jflow.execution import link
from jflow.plan import Plan, Program, Run, VariableKey, VariableSpec
from jflow.resources import Containers
from jflow.testing import PATIENCE_S
from jflow.worker.context import WorkerContext
from jflow.worker.device_pool import DevicePool
from jflow.worker.plan_run import run_plan
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

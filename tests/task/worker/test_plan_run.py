"""One run of a plan: what it keeps until its programs have ended, and where these run."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jflow.base.cluster import Device, Task
from jflow.plan import Call, Feed, Plan, Program, Run, Send, VariableKey, VariableSpec
from jflow.state.resources import Containers
from jflow.task.execution import LinkedRun, link
from jflow.task.execution.linked import N_LATENCIES, LinkedCall
from jflow.task.worker.context import WorkerContext
from jflow.task.worker.device_pool import ALONE_S, QUICK_S, DevicePool
from jflow.task.worker.plan_run import run_plan
from jflow.task.worker.rendezvous import Rendezvous
from jflow.testing import PATIENCE_S
from tests.net.protocol.hosts import eventually
from tests.variables import get_variable, set_variable

TASK = Task("ps", 0)
CPU = Device(TASK, "CPU", 0)
ELSEWHERE = Device(Task("worker", 0), "CPU", 0)
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


def test_values_are_freed_by_the_last_reference_not_by_the_garbage_collector() -> None:
    """A value may lie in shared memory, which is used again only when it is free."""

    class Peers:
        async def deliver(self, *_: Any) -> None:
            await asyncio.sleep(0)

    program = Run(Program("some"), inputs=(0,), outputs=(1,))
    plan = Plan(CPU, 2, (), ((Feed(0, 0), program, Send(0, ELSEWHERE, 1)),))
    linked = link(plan, HERE, lambda _: lambda x: [jnp.asarray(x)], {}.__getitem__)
    value = np.zeros(4)
    is_alive = weakref.ref(value)

    async def main(value: np.ndarray) -> None:
        with ThreadPoolExecutor(1) as threads:
            devices = DevicePool([HERE])
            context = WorkerContext(TASK, Containers(TASK), Rendezvous(), Peers(), threads, devices)
            await run_plan(linked, 1, {0: value}, context)
            devices.shutdown()

    gc.collect()
    gc.disable()
    try:
        asyncio.run(main(value))
        del value
        eventually(lambda: is_alive() is None)  # XLA's threads may hold it a moment longer
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("seconds", "n_others", "is_sending", "is_on_loop"),
    [
        pytest.param(QUICK_S, 1, True, True, id="quick"),
        pytest.param(ALONE_S, 0, False, True, id="alone"),
        pytest.param(ALONE_S, 1, False, False, id="beside another plan"),
        pytest.param(ALONE_S, 0, True, False, id="while something is sent"),
        pytest.param(2 * ALONE_S, 0, False, False, id="long"),
    ],
)
def test_a_program_takes_no_thread_where_nothing_else_waits_for_the_loop(
    seconds: float, n_others: int, is_sending: bool, is_on_loop: bool
) -> None:
    ran_in: list[threading.Thread] = []
    there = asyncio.Event()

    class Slow:
        """A transport that has sent what it is given when the program has run."""

        async def deliver(self, *_: Any) -> None:
            await there.wait()

    def program() -> list[Any]:
        ran_in.append(threading.current_thread())
        loop.call_soon_threadsafe(there.set)
        return [jnp.ones(3)]

    sends = (Send(0, ELSEWHERE, None),) if is_sending else ()
    plan = Plan(CPU, 1, (), ((*sends, Run(Program("some"), outputs=(0,))),))
    linked = link(plan, HERE, lambda _: program, {}.__getitem__)
    run = linked.stages[0][-1]
    assert isinstance(run, LinkedRun)
    for _ in range(N_LATENCIES):
        run.latency.note(seconds)

    async def main() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as threads:
            devices = DevicePool([HERE])
            context = WorkerContext(TASK, Containers(TASK), Rendezvous(), Slow(), threads, devices)
            context.plans.update(object() for _ in range(n_others))
            await run_plan(linked, 1, {}, context)
            assert len(context.plans) == n_others
            devices.shutdown()

    loop: Any = None
    asyncio.run(asyncio.wait_for(main(), 20))
    assert (ran_in == [threading.current_thread()]) == is_on_loop


@pytest.mark.parametrize(
    ("function", "n_elements", "is_on_loop"),
    [
        pytest.param("identity", 8, True, id="small"),
        pytest.param("identity", 1 << 20, False, id="large"),
        pytest.param("serialize_many_sparse", 8, False, id="unpredictable"),
    ],
)
def test_a_host_function_blocks_the_loop_only_if_it_is_certain_to_be_quick(
    function: str, n_elements: int, is_on_loop: bool
) -> None:
    ran_in: list[threading.Thread] = []

    def called(value: np.ndarray) -> list[np.ndarray]:
        ran_in.append(threading.current_thread())
        return [value]

    call = Call(function, inputs=(0,), outputs=(1,))
    plan = Plan(CPU, 2, (), ((Feed(0, 0), call),))
    linked = link(plan, HERE, {}.__getitem__, {}.__getitem__, {function: called})
    quick = linked.stages[0][-1]
    assert isinstance(quick, LinkedCall)
    quick.latency.note(QUICK_S / 10)

    async def main() -> None:
        with ThreadPoolExecutor(1) as threads:
            devices = DevicePool([HERE])
            context = WorkerContext(
                TASK, Containers(TASK), Rendezvous(), Nowhere(), threads, devices
            )
            await run_plan(linked, 1, {0: np.zeros(n_elements, np.float32)}, context)
            devices.shutdown()

    asyncio.run(asyncio.wait_for(main(), 20))
    assert (ran_in == [threading.current_thread()]) == is_on_loop

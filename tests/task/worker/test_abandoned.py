"""Steps that end while their programs run, and the devices that these make stuck."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import jax
import pytest

from jflow.base.cluster import Device, Task
from jflow.errors import UnavailableError
from jflow.net.protocol import StepOwner
from jflow.plan.xla.hardware import mesh_on
from jflow.task.worker.abandoned import AbandonedSteps
from jflow.task.worker.device_pool import N_LONG, DevicePool
from jflow.task.worker.registered import RegisteredPlans

ONE, TWO = jax.local_devices(backend="cpu")[:2]
WORKER, MASTER = Task("worker", 0), Task("ps", 1)
OWNER = StepOwner(None, 7, "ann")
LIMIT_S = 0.01


class Plan(NamedTuple):
    device: Device


class Linked(NamedTuple):
    """What is looked at of a linked plan."""

    device: Any
    plan: Plan


def plans(*devices: Any) -> RegisteredPlans:
    """The registered plans of a step, one for each device."""
    linked = tuple(
        Linked(device, Plan(Device(WORKER, "CPU", 1 if device is TWO else 0))) for device in devices
    )
    nothing: Any = None
    return RegisteredPlans(
        *(3, linked, (), (), nothing, False, False, OWNER, nothing, None, MASTER)  # type: ignore[arg-type]
    )


class Case:
    """A pool, and programs that run until their events are set."""

    def __init__(self) -> None:
        self.pool = DevicePool([ONE, TWO])
        self.abandoned = AbandonedSteps(self.pool)
        self.ends: list[threading.Event] = []
        self.reasons: list[str] = []
        self.abandoned.on_stuck = self.reasons.append

    async def started(self, device: Any, step: int) -> threading.Event:
        """Starts a program of a step; returns the event that ends it."""
        self.ends.append(threading.Event())
        await self.pool.start(device, self.ends[-1].wait, step)
        return self.ends[-1]

    def close(self) -> None:
        for end in self.ends:
            end.set()
        self.pool.shutdown()


def run(use: Callable[[Case], Awaitable[None]]) -> None:
    async def main() -> None:
        case = Case()
        try:
            await asyncio.wait_for(use(case), 20)
        finally:
            case.close()

    asyncio.run(main())


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_a_step_is_abandoned_as_long_as_its_program_runs(caplog: pytest.LogCaptureFixture) -> None:
    async def use(case: Case) -> None:
        end = await case.started(ONE, 1)
        case.abandoned.add(1, 0.0, plans(ONE, TWO))
        case.abandoned.add(2, 0.0, plans(ONE))  # nothing of it runs
        (step,) = case.abandoned.on(ONE)
        assert step.status().session == 7
        assert step.where == "/job:worker/task:0/device:CPU:0", "not the other device of the step"
        assert not case.abandoned.on(TWO)
        said = case.abandoned.describe(ONE)
        assert said.startswith("1 of them abandoned (the first: busy for ")
        assert (
            " with step 1 of session 7 of user ann of /job:ps/task:1, abandoned 0.0 s ago)" in said
        )
        assert not case.abandoned.describe(TWO)
        end.set()
        await until(lambda: not case.abandoned.on(ONE))
        assert not case.abandoned.stuck, "without a limit no device is ever stuck"

    with caplog.at_level(logging.INFO, "jflow"):
        run(use)
    noted = [(one.msg, one.fields["client"]) for one in caplog.records if hasattr(one, "fields")]
    client = "session 7 of user ann of /job:ps/task:1"
    assert noted == [("step_abandoned", client), ("abandoned_step_ended", client)]


def test_a_device_is_stuck_after_the_limit_and_until_the_last_late_program_ends() -> None:
    async def use(case: Case) -> None:
        case.abandoned.limit_s = LIMIT_S
        first, second = await case.started(ONE, 1), await case.started(ONE, 2)
        case.abandoned.add(1, 0.0, plans(ONE))
        case.abandoned.add(2, 0.0, plans(ONE))
        case.abandoned.refuse(plans(ONE).plans)
        await until(lambda: case.abandoned.stuck)
        await asyncio.sleep(LIMIT_S)  # it ends after the timers that were started before it
        assert len(case.reasons) == 1, "of one device it is told once"
        case.abandoned.refuse(plans(TWO).plans)
        with pytest.raises(UnavailableError, match=r"CPU:0 is stuck .* step 1 of session") as error:
            case.abandoned.refuse(plans(TWO, ONE).plans)
        assert error.value.task == str(WORKER)
        first.set()
        await until(lambda: len(case.abandoned.steps) == 1)
        with pytest.raises(UnavailableError, match="with step 2 of"):
            case.abandoned.refuse(plans(ONE).plans)
        second.set()
        await until(lambda: not case.abandoned.steps)
        case.abandoned.refuse(plans(ONE).plans)

    run(use)


def test_a_program_that_ends_before_the_limit_makes_nothing_stuck() -> None:
    async def use(case: Case) -> None:
        case.abandoned.limit_s = LIMIT_S
        end = await case.started(ONE, 1)
        case.abandoned.add(1, 0.0, plans(ONE))
        end.set()
        await until(lambda: not case.abandoned.steps)
        await asyncio.sleep(LIMIT_S)  # as above
        assert not case.reasons

    run(use)


def test_a_program_of_a_mesh_makes_all_its_devices_stuck_and_no_other() -> None:
    async def use(case: Case) -> None:
        mesh = mesh_on((("x", 1),), [ONE])
        case.abandoned.limit_s = LIMIT_S
        await case.started(mesh, 1)
        case.abandoned.add(1, 0.0, plans(mesh))
        await until(lambda: case.abandoned.stuck)
        assert {*case.abandoned.stuck} == {ONE}
        for device in (mesh, ONE):
            with pytest.raises(UnavailableError):
                case.abandoned.refuse(plans(device).plans)

    run(use)


@pytest.mark.parametrize("on", ["a slot", "a mesh"])
def test_what_waits_for_a_device_fails_when_it_is_stuck(on: str) -> None:
    async def use(case: Case) -> None:
        case.abandoned.limit_s = LIMIT_S
        place: Any = ONE
        if on == "a mesh":
            place = mesh_on((("x", 2),), [ONE, TWO])
            await case.started(place, 1)
        else:
            for _ in range(N_LONG):
                await case.started(ONE, 1)
        waiting = asyncio.ensure_future(case.started(ONE, 2))
        elsewhere = asyncio.ensure_future(case.started(TWO, 3))
        await until(lambda: 2 in case.pool.queued(ONE))
        case.abandoned.add(1, 0.0, plans(place))
        with pytest.raises(UnavailableError, match="stuck"):
            await waiting
        assert not case.pool.queued(ONE)
        if on == "a slot":
            await elsewhere
        else:  # of the mesh, too
            with pytest.raises(UnavailableError, match="stuck"):
                await elsewhere
        # The places of those that failed are not lost.
        for end in case.ends:
            end.set()
        for _ in range(2 * N_LONG):
            (await case.started(ONE, 4)).set()

    run(use)

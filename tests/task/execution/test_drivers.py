"""Both drivers run the same plans: results, errors and state are the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jflow.base.cluster import Device, Task
from jflow.base.drivers.loop import all_of
from jflow.base.packing import pack
from jflow.base.values import TensorSpec
from jflow.errors import AbortedError, OpError
from jflow.launch.testing.waiting import wait_until
from jflow.plan import (
    CALLBACK,
    Call,
    CallbackAttributes,
    Feed,
    Fetch,
    Instruction,
    Plan,
    Program,
    Recv,
    ResourceSpec,
    Run,
    Send,
    VariableKey,
    VariableSpec,
)
from jflow.plan.trace.record import Recorder, TaskRecord
from jflow.state.resources import Containers
from jflow.state.resources.queue import QueueSpec
from jflow.task.execution import LocalExecutable, link
from jflow.task.worker.context import WorkerContext
from jflow.task.worker.device_pool import DevicePool
from jflow.task.worker.plan_run import run_plan
from jflow.task.worker.rendezvous import Rendezvous
from tests.drawn import examples
from tests.variables import get_variable

TASK = Task("a", 0)
DEVICES = {
    Device(TASK, "CPU", i): device for i, device in enumerate(jax.local_devices(backend="cpu")[:2])
}
HERE, THERE = DEVICES
X, MISSING = (VariableSpec(VariableKey("", name), "float32", (3,)) for name in ("x", "missing"))
SPEC = QueueSpec("FIFOQueue", 100, components=(TensorSpec((3,), "float32"),))
QUEUE = ResourceSpec("queue", "", "q", "", SPEC.to_bytes())
N_RUNS = 3
"""The first run of a program goes another way on a worker than those after it."""

PROGRAMS: dict[str, Any] = {
    "add": jax.jit(lambda x, y: [x + y]),
    "update": jax.jit(lambda old, x: [old + x, old * 2], donate_argnums=0),
    "read": jax.jit(lambda old: [old + 1]),
    "set": jax.jit(lambda x: [x]),
    "constant": jax.jit(lambda x, c: [x - c]),
    "narrow": jax.jit(lambda x: [jnp.reshape(x, (4,))]),
}


def _fail(_: Any) -> Any:
    raise AbortedError("the client failed")


FUNCTIONS: Sequence[Any] = (
    lambda operands: [operands[0] * 3],
    _fail,
    lambda operands: [operands[0][:2]],
)


@dataclass
class Builder:
    """The plan of one device in the making."""

    device: Device
    n_slots: int = 0
    n_queued: int = 0
    filled: list[int] = field(default_factory=list)
    stages: list[list[Instruction]] = field(default_factory=list)

    def slot(self) -> int:
        self.filled.append(self.n_slots)
        self.n_slots += 1
        return self.filled[-1]

    def add(self, *instructions: Instruction) -> None:
        self.stages[-1].extend(instructions)

    def add_kind(self, kind: str, one: int, other: int) -> None:
        """An instruction of a kind that takes the values of one or two slots."""
        to = self.slot
        match kind:
            case "program":
                self.add(Run(Program("add"), inputs=(one, other), outputs=(to(),)))
            case "constant":
                self.add(Run(Program("constant", ("c",)), inputs=(one,), outputs=(to(),)))
            case "update":
                held = {"before": ((0, to()),), "after": ((0, to()),)}
                program = Program("update", (), (0,))
                self.add(Run(program, (0,), (one,), (0,), (to(),), **held, op="update"))
            case "read":
                self.add(Run(Program("read"), reads=(0,), outputs=(to(),)))
            case "set":
                self.add(Run(Program("set"), inputs=(one,), writes=(0,), op="set"))
            case "initialize":
                self.add(Run(Program("set"), (), (one,), (0,), initializes=(0,)))
            case _:
                self._add_call(kind, one, other)

    def _add_call(self, kind: str, one: int, other: int) -> None:
        to = self.slot
        match kind:
            case "call":
                self.add(Call("identity", (one,), (to(),)))
            case "passed constant":
                self.add(Call("identity", (), (to(),), ("c",)))
            case "enqueue":
                self.n_queued += 1
                self.add(Call("queue.enqueue", (one,), resources=(0,)))
            case "dequeue" if self.n_queued:
                self.n_queued -= 1
                self.add(Call("queue.dequeue", (), (to(),), resources=(0,)))
            case "callback" | "dequeue":
                self.add(_callback(0, (one,), to()))
            case "conditional":
                condition = to()
                self.filled.remove(condition)
                self.add(Call("identity", (), (condition,), ("yes" if one % 2 else "no",)))
                self.add(_callback(0, (condition, other), to(), is_conditional=True))


KINDS = (
    *("program", "constant", "update", "read", "set", "initialize", "call", "passed constant"),
    *("enqueue", "dequeue", "callback", "conditional"),
)


def _callback(
    number: int, inputs: tuple[int, ...], to: int, *, is_conditional: bool = False
) -> Call:
    results = (TensorSpec((3,), "float32"),)
    attributes = CallbackAttributes(number, results, is_conditional).to_bytes()
    return Call(CALLBACK, inputs, (to,), attributes=attributes, op="callback")


FAULTS: dict[str, Any] = {
    "a variable that is not initialized": Run(Program("read"), reads=(1,), outputs=(90,)),
    "a program that does not take a value": Run(Program("narrow"), inputs=(0,), outputs=(90,)),
    "a call that fails": Call(
        "ensure_shape", (0,), (90,), attributes=pack({"shape": [4]}), op="shape"
    ),
    "an empty slot": Call("identity", (91,), (90,), op="empty"),
    "a kernel that does not take a value": Call(
        "queue.enqueue", (0, 0), resources=(0,), op="enqueue"
    ),
    "a closed queue": (
        Call("queue.close", resources=(0,)),
        Call("queue.enqueue", (0,), resources=(0,), op="late"),
    ),
    "a callback that fails": _callback(1, (0,), 90),
    "a callback of another shape": _callback(2, (0,), 90),
}


@st.composite
def steps(draw: st.DrawFn, fault: str | None = None) -> list[Plan]:
    """Plans of two devices that send each other values, perhaps with an instruction that fails."""
    builders = [Builder(HERE), Builder(THERE)]
    arriving: list[tuple[Builder, Recv]] = []
    n_edges = 0
    n_stages = draw(st.integers(1, 3))
    for stage in range(n_stages):
        for builder in builders:
            builder.stages.append([])
            if not stage:
                builder.add(Feed(0, builder.slot()), Run(Program("set"), (), (0,), (0,)))
        for builder, recv in arriving:
            builder.add(recv)
            if recv.slot is not None:
                builder.filled.append(recv.slot)
        arriving = []
        for builder, other in (builders, builders[::-1]):
            for kind in draw(st.lists(st.sampled_from(KINDS), max_size=4)):
                slots = st.sampled_from(builder.filled)
                builder.add_kind(kind, draw(slots), draw(slots))
            if draw(st.booleans()) and stage + 1 < n_stages:
                is_signal = draw(st.booleans())
                sent = None if is_signal else draw(st.sampled_from(builder.filled))
                builder.add(Send(n_edges, other.device, sent))
                to = None if is_signal else other.n_slots
                arriving.append((other, Recv(n_edges, builder.device, to)))
                other.n_slots += 1
                n_edges += 1
    if fault is not None:
        found = FAULTS[fault]
        draw(st.sampled_from(builders)).add(*(found if isinstance(found, tuple) else (found,)))
    after = draw(st.sampled_from([(), tuple((i - 1,)[: i > 0] for i in range(n_stages))]))
    plans = []
    for i, builder in enumerate(builders):
        fetched = draw(st.sampled_from(builder.filled))
        builder.add(Fetch(fetched, i))
        stages = tuple(map(tuple, builder.stages))
        plans.append(Plan(builder.device, 100, (X, MISSING), stages, (QUEUE,), after))
    return plans


Outcome = list[Any]


def _blocking(plans: Sequence[Plan], is_traced: bool = False) -> Outcome:
    containers = Containers(TASK)
    step = LocalExecutable(_linked(plans), 2, containers, FUNCTIONS)
    found: Outcome = []
    try:
        for run in range(N_RUNS):
            if is_traced:
                records: list[TaskRecord] = []
                found.append(step.run([_feed(run)], records=records))
                assert [record.n_dropped for record in records] == [0]
            else:
                found.append(step.run([_feed(run)]))
    except OpError as error:
        return [*found, _told(error)]
    return [*found, _state(containers)]


def _asyncio(plans: Sequence[Plan], is_traced: bool = False) -> Outcome:
    containers = Containers(TASK)
    linked = _linked(plans)

    async def client(number: int, operands: Any, answer: asyncio.Future[Any]) -> None:
        await asyncio.sleep(0)
        try:
            answer.set_result(FUNCTIONS[number](operands))
        except OpError as error:
            answer.set_exception(error)

    async def run(context: WorkerContext, number: int) -> list[Any]:
        if is_traced:
            context.recorders[number] = Recorder(str(TASK), time.perf_counter)
        context.rendezvous.open(number)
        fed = {0: _feed(number)}
        results = await all_of(run_plan(one, number, fed, context, client) for one in linked)
        context.rendezvous.end_step(number)
        return [result[i] for i, result in enumerate(results)]

    async def main() -> Outcome:
        found: Outcome = []
        with ThreadPoolExecutor(2) as threads:
            devices = DevicePool(DEVICES.values())
            context = WorkerContext(TASK, containers, Rendezvous(), Nowhere(), threads, devices)
            try:
                async with asyncio.timeout(20):
                    for number in range(N_RUNS):
                        found.append(await run(context, number))
            except OpError as error:
                return [*found, _told(error)]
            finally:
                devices.shutdown()
        return [*found, _state(containers)]

    return asyncio.run(main())


class Nowhere:
    """There are no other tasks."""

    async def deliver(self, *_: Any) -> None:
        raise AssertionError


def _linked(plans: Sequence[Plan]) -> list[Any]:
    def link_one(plan: Plan) -> Any:
        device = DEVICES[plan.device]
        constants = {
            "c": jax.device_put(jnp.float32([1, 2, 3]), device),
            "yes": np.array(True),
            "no": np.array(False),
        }
        return link(plan, device, lambda one: PROGRAMS[one.digest], constants.__getitem__)

    return [link_one(plan) for plan in plans]


def _feed(run: int) -> Any:
    return np.float32([1, 2, 3]) + run


def _told(error: OpError) -> Any:
    return type(error), error.message, error.op


def _state(containers: Containers) -> Any:
    variables = [get_variable(containers, device, X).buffer for device in DEVICES]
    leases = [lease for buffer in variables for lease in buffer.leases]
    # The step has ended, but a device may still compute what it has read.
    wait_until(lambda: all(lease.is_over for lease in leases), "leases of a step to end")
    queues = [containers.resources.get(device, QUEUE) for device in DEVICES]
    return [
        *(buffer.array for buffer in variables),
        *(queue.query(lambda state: state.size) for queue in queues),
    ]


def _assert_same(plans: Sequence[Plan], is_traced: bool = False) -> Outcome:
    blocking, awaited = _blocking(plans), _asyncio(plans, is_traced)
    if is_traced:
        _assert_equal(blocking, _blocking(plans, is_traced))
    _assert_equal(blocking, awaited)
    return blocking


def _assert_equal(blocking: Outcome, awaited: Outcome) -> None:
    assert jax.tree.structure(blocking) == jax.tree.structure(awaited)
    for one, other in zip(jax.tree.leaves(blocking), jax.tree.leaves(awaited), strict=True):
        np.testing.assert_array_equal(one, other)


@settings(max_examples=examples(20), deadline=None)
@given(steps())
def test_a_step_gives_the_same_results_and_leaves_the_same_state(plans: list[Plan]) -> None:
    assert len(_assert_same(plans)) == N_RUNS + 1


@settings(max_examples=examples(8), deadline=None)
@given(steps())
def test_a_traced_step_is_the_same_step(plans: list[Plan]) -> None:
    assert len(_assert_same(plans, is_traced=True)) == N_RUNS + 1


@pytest.mark.parametrize("fault", FAULTS)
@settings(max_examples=3, deadline=None)
@given(st.data())
def test_a_traced_step_that_fails_gives_the_same_error(fault: str, data: st.DataObject) -> None:
    outcome = _assert_same(data.draw(steps(fault)), is_traced=True)
    assert issubclass(outcome[-1][0], OpError)


@pytest.mark.parametrize("fault", FAULTS)
@settings(max_examples=8, deadline=None)
@given(st.data())
def test_a_step_that_fails_gives_the_same_error(fault: str, data: st.DataObject) -> None:
    outcome = _assert_same(data.draw(steps(fault)))
    assert issubclass(outcome[-1][0], OpError)

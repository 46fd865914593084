"""Plans whose calls make no sense are refused, and harm nothing that others use."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from jflow.base.cluster import LOCAL_TASK, Device, Task
from jflow.base.deadline import Deadline
from jflow.base.packing import pack
from jflow.base.values import TensorSpec
from jflow.client.runtime.local import LocalBackend
from jflow.compiler.pipeline import CompiledStep
from jflow.errors import InvalidArgumentError, OpError
from jflow.plan import Call, Feed, Fetch, Instruction, Plan, ResourceSpec, fetch_indices
from jflow.state.resources.accumulator import AccumulatorSpec
from jflow.state.resources.queue import QueueSpec
from jflow.task.execution import local_devices
from jflow.task.worker import Worker
from jflow.testing import PATIENCE_S

TASK = Task("a", 0)
HERE = Device(TASK, "CPU", 0)
SPEC = QueueSpec("FIFOQueue", 10, components=(TensorSpec((), "float32"),))
RECORD = msgspec.msgpack.decode(SPEC.to_bytes())
QUEUE = ResourceSpec("queue", "", "q", "", SPEC.to_bytes())
ACCUMULATOR = ResourceSpec(
    "accumulator", "", "acc", "", AccumulatorSpec("float32", (), "MEAN", is_sparse=False).to_bytes()
)


class Nowhere:
    """There are no other tasks."""

    async def deliver(self, *_: Any) -> None:
        raise AssertionError


def _plan(*steps: Instruction, resource: ResourceSpec = QUEUE) -> Plan:
    return Plan(HERE, 4, (), (steps,), (resource,))


def _call(function: str, attributes: Any = None, **fields: Any) -> Call:
    packed = attributes if isinstance(attributes, bytes) else pack(attributes or {})
    return Call(function, attributes=packed, **({"resources": (0,)} | fields))


async def _run(worker: Worker, plan: Plan, *feeds: float) -> list[Any]:
    registered = await worker.register([plan], {})
    arrays = [np.asarray(feed, np.float32) for feed in feeds]
    async with asyncio.timeout(PATIENCE_S):
        return await worker.run_plans(registered.handle, registered.handle, arrays)


PUT = _plan(Feed(0, 0), _call("queue.enqueue", inputs=(0,)))
TAKE = _plan(_call("queue.dequeue", outputs=(0,)), Fetch(0, 0))


def _check(bad: Plan, *feeds: float) -> None:
    """A plan is refused, and a queue that others use is as it was."""
    _check_on_a_worker(bad, *feeds)
    _check_in_this_process(bad, *feeds)


def _check_in_this_process(bad: Plan, *feeds: float) -> None:
    backend = LocalBackend()

    def run(plan: Plan, *feeds: float) -> list[Any]:
        here = replace(plan, device=Device(LOCAL_TASK, "CPU", 0))
        step = CompiledStep({}, (here,), {}, {}, (), len(fetch_indices([here])))
        arrays = [np.asarray(feed, np.float32) for feed in feeds]
        return backend.register(step).run(arrays, Deadline(PATIENCE_S))

    run(PUT, 1.0)
    run(PUT, 2.0)
    with pytest.raises(InvalidArgumentError):
        run(bad, *feeds)
    assert [run(TAKE) for _ in range(2)] == [[1.0], [2.0]]
    run(PUT, 3.0)
    assert run(TAKE) == [3.0]


def _check_on_a_worker(bad: Plan, *feeds: float) -> None:

    async def use(worker: Worker) -> None:
        await _run(worker, PUT, 1.0)
        await _run(worker, PUT, 2.0)
        with pytest.raises(InvalidArgumentError):
            await _run(worker, bad, *feeds)
        assert [await _run(worker, TAKE) for _ in range(2)] == [[1.0], [2.0]]
        await _run(worker, PUT, 3.0)
        assert await _run(worker, TAKE) == [3.0]

    _with_worker(use)


def _with_worker(use: Any) -> None:
    async def main() -> None:
        with ThreadPoolExecutor(2) as threads:
            await use(Worker(TASK, local_devices(TASK), Nowhere(), threads))

    work: Coroutine[Any, Any, None] = main()
    asyncio.run(work)


@pytest.mark.parametrize(
    "attributes",
    [
        {"count": "3"},
        {"count": 1.5},
        {"count": None},
        {"count": [1]},
        {"count": -1},
        {"count": 2, "minimum": 3},
        {"count": 2, "minimum": 1.5},
        {"count": 2, "minimum": "1"},
        {"count": 2, "nonsense": 1},
        {"cuont": 2},
        {"count": True},
        {"count": 2, "up_to": 1},
        msgspec.msgpack.encode({"count": float("inf")}),
        msgspec.msgpack.encode({"count": float("nan")}),
        msgspec.msgpack.encode({"count": msgspec.msgpack.Ext(1, b"2")}),
        msgspec.msgpack.encode({"up_to": True, "count": 2}),
        b"\x82\xa5count\x01\xa5count\x01",
        b"nonsense",
        b'{"count": 1}',
        b"\x90",
        b"\x03",
        b"\xdf\xff\xff\xff\xff",
        b"",
    ],
    ids=str,
)
def test_attributes_of_another_name_or_type(attributes: Any) -> None:
    _check(_plan(_call("queue.dequeue_many", attributes, outputs=(0,)), Fetch(0, 0)))


@pytest.mark.parametrize("attribute", ["count", "held", "values", "self", "components"])
@pytest.mark.parametrize(
    "function", ["queue.enqueue", "queue.dequeue", "queue.close", "queue.size"]
)
def test_attributes_that_an_operation_does_not_have(function: str, attribute: str) -> None:
    outputs = (1,) if function in ("queue.dequeue", "queue.size") else ()
    inputs = (0,) if function == "queue.enqueue" else ()
    call = _call(function, {attribute: 1}, inputs=inputs, outputs=outputs)
    _check(_plan(Feed(0, 0), call), 5.0)


@pytest.mark.parametrize("function", ["nonsense", "queue.nonsense", "", "identity", "ensure_shape"])
def test_functions_that_are_no_operations(function: str) -> None:
    _check(_plan(_call(function, {}, outputs=(0,))))


@pytest.mark.parametrize(
    "call",
    [
        Call("ensure_shape", (0,), (1,), attributes=pack({"shape": [], "more": 1})),
        Call("ensure_shape", (0,), (1,)),
        Call("ensure_shape", (0, 0), (1,), attributes=pack({"shape": []})),
        Call("ensure_shape", (), (1,), attributes=pack({"shape": []})),
        Call("ensure_shape", (0,), (1,), attributes=pack({"shape": 3})),
        Call(
            "ensure_shape_like",
            (0,),
            (1,),
            attributes=pack({"shape": [], "leading": 0, "what": ""}),
        ),
        Call("ensure_shape_like", (0, 0), (1,), attributes=pack({"shape": [], "what": ""})),
        Call("identity", (0, 0), (1,)),
        Call("identity", (), (1,)),
        Call("identity", (), ()),
        Call("identity", (0,), ()),
        Call("identity", (0,), (1, 2)),
        Call("identity", (3,), (1,)),
        Call("check_indices", (0,), ()),
        Call("cast", (0,), (1,), attributes=pack({"dtype": "nonsense"})),
        Call("cast", (0,), (1,), attributes=pack({"dtype": 3})),
    ],
    ids=lambda call: f"{call.function} {len(call.inputs)} {len(call.outputs)} {call.attributes}",
)
def test_functions_with_the_wrong_arguments(call: Call) -> None:
    _check(_plan(Feed(0, 0), call), 5.0)


@pytest.mark.parametrize("n_inputs", [0, 2])
def test_an_element_of_another_number_of_components(n_inputs: int) -> None:
    _check(_plan(Feed(0, 0), _call("queue.enqueue", inputs=(0,) * n_inputs)), 5.0)


def test_more_inputs_than_an_operation_takes() -> None:
    _check(_plan(Feed(0, 0), _call("queue.dequeue", inputs=(0,), outputs=(1,))), 5.0)


def test_a_count_that_is_no_integer() -> None:
    _check(_plan(Feed(0, 0), _call("queue.dequeue_many", inputs=(0,), outputs=(1,))), 1.0)


def test_a_slot_that_nothing_fills() -> None:
    _check(_plan(_call("queue.enqueue", inputs=(3,))))


@pytest.mark.parametrize("function", ["queue.size", "queue.dequeue", "reader.read"])
def test_an_operation_without_a_resource(function: str) -> None:
    _check(_plan(_call(function, outputs=(0,), resources=())))


@pytest.mark.parametrize("function", ["queue.size", "queue.dequeue", "reader.n_records"])
def test_an_operation_on_a_resource_of_another_kind(function: str) -> None:
    _check(_plan(_call(function, outputs=(0,)), resource=ACCUMULATOR))


BAD_RECORDS: dict[str, Any] = {
    "no MessagePack": b"nonsense",
    "no bytes at all": b"",
    "JSON": b'{"kind": "FIFOQueue"}',
    "a list": [],
    "nothing": {},
    "half of it": SPEC.to_bytes()[:40],
    "more than it": SPEC.to_bytes() + b"\x00",
    "another order": dict(sorted(RECORD.items(), reverse=True)),
    "one key too many": RECORD | {"more": 1},
    "unknown kind": RECORD | {"kind": "LIFOQueue"},
    "kind of a number": RECORD | {"kind": 3},
    "capacity of text": RECORD | {"capacity": "10"},
    "capacity of a float": RECORD | {"capacity": 1.5},
    "capacity of a boolean": RECORD | {"capacity": True},
    "seed of text": RECORD | {"seed": "x"},
    "no components": RECORD | {"components": []},
    "components of text": RECORD | {"components": "x"},
    "components of numbers": RECORD | {"components": [3]},
    "unknown dtype": RECORD | {"components": [{"shape": [], "dtype": "x"}]},
    "negative size": RECORD | {"components": [{"shape": [-1], "dtype": "float32"}]},
    "shape of text": RECORD | {"components": [{"shape": "x", "dtype": "float32"}]},
    "names of numbers": RECORD | {"names": [1]},
    "too many names": RECORD | {"names": ["a", "b"]},
    "no memory": RECORD | {"capacity_bytes": 0},
    "minimum of a FIFO queue": RECORD | {"min_after_dequeue": 1},
}


@pytest.mark.parametrize("name", ["q", "new"])
@pytest.mark.parametrize("record", BAD_RECORDS)
def test_a_definition_of_no_queue(record: str, name: str) -> None:
    bad = BAD_RECORDS[record]
    bad = bad if isinstance(bad, bytes) else msgspec.msgpack.encode(bad)
    resource = replace(QUEUE, name=name, definition=bad)
    _check(_plan(_call("queue.size", outputs=(0,)), resource=resource))


def test_a_resource_of_no_known_kind() -> None:
    resource = replace(QUEUE, kind="stack")
    _check(_plan(_call("queue.size", outputs=(0,)), resource=resource))


def test_calls_that_can_never_work_are_refused_when_they_are_registered() -> None:
    bad = [
        _plan(_call("queue.dequeue_many", {"cuont": 1}, outputs=(0,))),
        _plan(_call("queue.nonsense", outputs=(0,))),
        _plan(_call("queue.size", outputs=(0,)), resource=ACCUMULATOR),
        _plan(Call("ensure_shape", (0,), (1,))),
    ]

    async def use(worker: Worker) -> None:
        for plan in bad:
            with pytest.raises(OpError):
                await worker.register([plan], {})

    _with_worker(use)

"""Plans whose calls make no sense are refused, and harm nothing that others use."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jflow.cluster import Device, Task
from jflow.errors import InvalidArgumentError, OpError
from jflow.execution import local_devices
from jflow.plan import Call, Feed, Fetch, Instruction, Plan, ResourceSpec
from jflow.resources.queue import QueueSpec
from jflow.testing import PATIENCE_S
from jflow.values import TensorSpec
from jflow.worker import Worker

TASK = Task("a", 0)
HERE = Device(TASK, "CPU", 0)
RECORD = QueueSpec("FIFOQueue", 10, components=(TensorSpec((), "float32"),)).to_attributes()
QUEUE = ResourceSpec("queue", "", "q", "", json.dumps(RECORD))
ACCUMULATOR = ResourceSpec(
    "accumulator",
    "",
    "acc",
    "",
    json.dumps({"dtype": "float32", "shape": [], "reduction": "MEAN", "is_sparse": False}),
)


class Nowhere:
    """There are no other tasks."""

    async def deliver(self, *_: Any) -> None:
        raise AssertionError


def _plan(*steps: Instruction, resource: ResourceSpec = QUEUE) -> Plan:
    return Plan(HERE, 4, (), (steps,), (resource,))


def _call(function: str, attributes: Any = None, **fields: Any) -> Call:
    text = attributes if isinstance(attributes, str) else json.dumps(attributes or {})
    return Call(function, attributes=text, **({"resources": (0,)} | fields))


async def _run(worker: Worker, plan: Plan, *feeds: float) -> list[Any]:
    registered = await worker.register([plan], {})
    arrays = [np.asarray(feed, np.float32) for feed in feeds]
    async with asyncio.timeout(PATIENCE_S):
        return await worker.run(registered.handle, registered.handle, arrays)


PUT = _plan(Feed(0, 0), _call("queue.enqueue", inputs=(0,)))
TAKE = _plan(_call("queue.dequeue", outputs=(0,)), Fetch(0, 0))


def _check(bad: Plan, *feeds: float) -> None:
    """A plan is refused, and a queue that others use is as it was."""

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
        '{"count": Infinity}',
        '{"count": NaN}',
        "nonsense",
        "[]",
        "3",
        "",
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
        Call("ensure_shape", (0,), (1,), attributes='{"shape": [], "more": 1}'),
        Call("ensure_shape", (0,), (1,)),
        Call("ensure_shape", (0, 0), (1,), attributes='{"shape": []}'),
        Call("ensure_shape", (), (1,), attributes='{"shape": []}'),
        Call("ensure_shape", (0,), (1,), attributes='{"shape": 3}'),
        Call("ensure_shape_like", (0,), (1,), attributes='{"shape": [], "leading": 0, "what": ""}'),
        Call("ensure_shape_like", (0, 0), (1,), attributes='{"shape": [], "what": ""}'),
        Call("identity", (0, 0), (1,)),
        Call("identity", (), (1,)),
        Call("identity", (), ()),
        Call("identity", (0,), ()),
        Call("identity", (0,), (1, 2)),
        Call("identity", (3,), (1,)),
        Call("check_indices", (0,), ()),
        Call("cast", (0,), (1,), attributes='{"dtype": "nonsense"}'),
        Call("cast", (0,), (1,), attributes='{"dtype": 3}'),
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
    "no JSON": "nonsense",
    "a list": "[]",
    "nothing": "{}",
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
    "unknown dtype": RECORD | {"components": [{"dtype": "x", "shape": []}]},
    "negative size": RECORD | {"components": [{"dtype": "float32", "shape": [-1]}]},
    "shape of text": RECORD | {"components": [{"dtype": "float32", "shape": "x"}]},
    "names of numbers": RECORD | {"names": [1]},
    "too many names": RECORD | {"names": ["a", "b"]},
    "no memory": RECORD | {"capacity_bytes": 0},
    "minimum of a FIFO queue": RECORD | {"min_after_dequeue": 1},
}


@pytest.mark.parametrize("name", ["q", "new"])
@pytest.mark.parametrize("record", BAD_RECORDS)
def test_a_definition_of_no_queue(record: str, name: str) -> None:
    text = BAD_RECORDS[record]
    text = text if isinstance(text, str) else json.dumps(text)
    resource = replace(QUEUE, name=name, definition=text)
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

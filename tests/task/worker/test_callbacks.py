"""Steps of plans that the client of a step computes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import numpy as np
import pytest

from jflow.base.cluster import Device, Task
from jflow.errors import InvalidArgumentError, UnknownError
from jflow.plan import CALLBACK, Call, Feed, Fetch, Plan
from jflow.task.execution import local_devices
from jflow.task.worker import Worker
from jflow.testing import PATIENCE_S

TASK = Task("a", 0)
HERE = Device(TASK, "CPU", 0)

ONE = {
    "number": 3,
    "results": [{"shape": [2], "dtype": "float32"}],
    "is_conditional": False,
}


def _returning(shape: Any, dtype: Any = "float32") -> dict[str, Any]:
    return {**ONE, "results": [{"shape": shape, "dtype": dtype}]}


class _Nowhere:
    """There are no other tasks."""

    async def deliver(self, *_: Any) -> None:
        raise AssertionError


def _with_worker(use: Callable[[Worker], Coroutine[Any, Any, None]]) -> None:
    with ThreadPoolExecutor(2) as threads:

        async def run() -> None:
            async with asyncio.timeout(PATIENCE_S):
                await use(Worker(TASK, local_devices(TASK), _Nowhere(), threads))

        asyncio.run(run())


def _plan(attributes: Any, inputs: tuple[int, ...] = (0,)) -> Plan:
    call = Call(CALLBACK, inputs, (3,), attributes=msgspec.msgpack.encode(attributes), op="call")
    feeds = tuple(Feed(slot, slot) for slot in inputs)
    return Plan(HERE, 4, (), ((*feeds, call, Fetch(3, 0)),))


def _answering(*results: Any) -> Any:
    async def client(number: int, operands: Any, answer: asyncio.Future[Any]) -> None:
        assert number == 3
        answer.get_loop().call_soon(answer.set_result, results)

    return client


def test_what_the_client_gives_is_used_if_it_is_what_was_declared() -> None:
    good = np.ones(2, np.float32)

    async def use(worker: Worker) -> None:
        handle = (await worker.register([_plan(ONE)], {})).handle
        (found,) = await worker.run_plans(1, handle, [good], _answering(good * 2))
        np.testing.assert_array_equal(found, good * 2)
        for bad in ((), (good, good), (np.ones(3, np.float32),), (np.ones(2, np.int32),)):
            with pytest.raises(
                InvalidArgumentError, match="from the function of the client"
            ) as caught:
                await worker.run_plans(2, handle, [good], _answering(*bad))
            assert caught.value.op == "call"

    _with_worker(use)


def test_a_conditional_call_is_made_only_if_its_predicate_is_true() -> None:
    value = np.ones(2, np.float32)

    async def use(worker: Worker) -> None:
        plan = _plan(ONE | {"is_conditional": True}, inputs=(0, 1))
        handle = (await worker.register([plan], {})).handle
        (found,) = await worker.run_plans(1, handle, [np.array(False), value])
        np.testing.assert_array_equal(found, np.zeros(2, np.float32))
        (found,) = await worker.run_plans(2, handle, [np.array(True), value], _answering(value))
        np.testing.assert_array_equal(found, value)

    _with_worker(use)


def test_a_task_without_the_client_refuses_the_call() -> None:
    async def use(worker: Worker) -> None:
        handle = (await worker.register([_plan(ONE)], {})).handle
        with pytest.raises(InvalidArgumentError, match="not connected to this task"):
            await worker.run_plans(1, handle, [np.ones(2, np.float32)])

    _with_worker(use)


def test_a_call_that_fails_ends_the_share_and_names_the_operation() -> None:
    async def client(_: int, __: Any, answer: asyncio.Future[Any]) -> None:
        answer.set_exception(UnknownError("the callback failed"))

    async def use(worker: Worker) -> None:
        handle = (await worker.register([_plan(ONE)], {})).handle
        with pytest.raises(UnknownError, match="the callback failed") as caught:
            await worker.run_plans(1, handle, [np.ones(2, np.float32)], client)
        assert (caught.value.op, caught.value.task) == ("call", str(TASK))

    _with_worker(use)


BAD: dict[str, Any] = {
    "nothing": {},
    "no number": {**ONE, "number": "3"},
    "a negative number": {**ONE, "number": -1},
    "a number too large": {**ONE, "number": 2**32},
    "an unknown dtype": _returning([2], "object"),
    "a dtype that is a list": _returning([2], []),
    "a negative size": _returning([-2]),
    "a size that is text": _returning(["2"]),
    "results of an unknown rank": _returning(None),
    "results that are strings": _returning([2], "string"),
    "results of unknown sizes that may be zeros": {
        **_returning([None]),
        "is_conditional": True,
    },
    "results that are none": {**ONE, "results": 5},
    "too few results": {**ONE, "results": []},
    "a condition that is none": {**ONE, "is_conditional": 1},
}


@pytest.mark.parametrize("name", BAD)
def test_attributes_of_no_callback_are_refused(name: str) -> None:
    async def use(worker: Worker) -> None:
        with pytest.raises(InvalidArgumentError):
            await worker.register([_plan(BAD[name])], {})

    _with_worker(use)


def test_a_conditional_call_without_a_predicate_is_refused() -> None:
    async def use(worker: Worker) -> None:
        with pytest.raises(InvalidArgumentError):
            await worker.register([_plan(ONE | {"is_conditional": True}, inputs=())], {})

    _with_worker(use)

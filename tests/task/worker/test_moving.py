"""What a task does in moves: holds that end by themselves, and what it asks the source."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from jflow.base.cluster import Device, Task
from jflow.errors import AbortedError, InvalidArgumentError, UnavailableError
from jflow.plan import Plan, Run, VariableKey, VariableSpec
from jflow.state.core import StateMoves
from jflow.state.moves import End, MovedError, StateId
from jflow.state.resources.moving import SavedStates, SavedVariable
from jflow.task.execution import local_devices
from jflow.task.worker import Worker

OWN, OTHER = Task("worker", 0), Task("worker", 1)
HERE, THERE = Device(OWN, "CPU", 0), Device(OTHER, "CPU", 0)
V_HERE = StateId(str(HERE), "variable", "", "v")
V_THERE = StateId(str(THERE), "variable", "", "v")
SPEC = VariableSpec(VariableKey("", "v"), "float32", ())
READ = Plan(HERE, 1, (SPEC,), ((Run(None, reads=(), before=((0, 0),)),),))


class Answering:
    """A transport to tasks that answer how a move has ended."""

    incarnation = 1

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome
        self.n_requests = 0

    async def deliver(self, *_: Any) -> None:
        raise AssertionError("nothing is sent")

    def __getitem__(self, task: Task) -> Answering:
        return self

    async def connect(self, connect_timeout: float) -> Answering:
        return self

    async def call(self, method: Any, incarnation: int, hold: str) -> bool:
        assert method is StateMoves.outcome
        self.n_requests += 1
        outcome = next(self.outcome) if isinstance(self.outcome, Iterator) else self.outcome
        if isinstance(outcome, Exception):
            raise outcome
        return bool(outcome)


def on_worker(
    use: Callable[[Worker], Coroutine[Any, Any, None]], outcome: Any = False
) -> Answering:
    """Runs a coroutine function on the worker of OWN; returns its transport."""

    async def run() -> Answering:
        transport = Answering(outcome)
        with ThreadPoolExecutor() as threads:
            await use(Worker(OWN, local_devices(OWN), transport, threads))
        return transport

    return asyncio.run(run())


async def put(worker: Worker, hold: str) -> None:
    record = SavedStates((SavedVariable(0, "float32", ()),), ()).to_bytes()
    await worker.moves.put(hold, record, [np.float32(5.0).reshape(())])


def value(worker: Worker) -> float:
    found = worker.containers.peek(HERE, VariableKey("", "v"))
    assert found is not None
    return float(found)


def test_a_hold_of_the_source_ends_after_its_time_and_nothing_has_moved() -> None:
    async def use(worker: Worker) -> None:
        await worker.moves.hold("h", [V_HERE], str(THERE), 0.01)
        await worker.moves.save("h")
        registering = asyncio.ensure_future(worker.register([READ], {}))
        assert (await registering).handle, "it waited for the end of the hold"
        with pytest.raises(AbortedError, match="the state is where it was"):
            await worker.moves.end("h", End.MOVED)
        assert not await worker.moves.outcome("h")

    assert on_worker(use).n_requests == 0


@pytest.mark.parametrize("how", ["time", "stream", "unknown"])
def test_a_task_that_the_mover_does_not_tell_asks_the_source(how: str) -> None:
    async def use(worker: Worker) -> None:
        caller = worker.open_session()
        await caller.moves.hold("h", [V_THERE], str(HERE), 0.2 if how == "time" else 100.0)
        await put(caller, "h")
        if how == "stream":
            caller.close()
        elif how == "unknown":
            await caller.moves.end("h", End.UNKNOWN)
        await worker.moves.plans.released({V_HERE})
        assert value(worker) == 5.0
        with pytest.raises(MovedError):
            worker.moves.steps.directory.check({V_THERE})

    assert on_worker(use, outcome=True).n_requests == 1


def test_a_copy_is_kept_while_the_source_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jflow.state.core.moves.RETRY_S", 0.01)
    answers = iter([UnavailableError("not yet"), UnavailableError("not yet"), True])

    async def use(worker: Worker) -> None:
        await worker.moves.hold("h", [V_THERE], str(HERE), 100.0)
        await put(worker, "h")
        await worker.moves.end("h", End.UNKNOWN)
        await worker.moves.plans.released({V_HERE})
        assert value(worker) == 5.0

    assert on_worker(use, outcome=answers).n_requests == 3


@pytest.mark.parametrize("outcome", [False, UnavailableError("it does not answer")])
def test_a_copy_is_dropped_if_the_source_has_kept_the_state_or_cannot_be_asked(
    outcome: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jflow.state.core.moves.ASK_S", 0.2)

    async def use(worker: Worker) -> None:
        await worker.moves.hold("h", [V_THERE], str(HERE), 100.0)
        await put(worker, "h")
        await worker.moves.end("h", End.UNKNOWN)
        await worker.moves.plans.released({V_HERE, V_THERE})
        assert worker.containers.peek(HERE, VariableKey("", "v")) is None

    on_worker(use, outcome)
    assert ("has not answered for 0.2 s" in caplog.text) is bool(outcome)


def test_a_reset_during_a_move_breaks_it() -> None:
    async def use(worker: Worker) -> None:
        await worker.moves.hold("h", [V_HERE], str(THERE), 100.0)
        await worker.moves.save("h")
        await worker.reset([""])
        with pytest.raises(AbortedError, match="container was reset"):
            await worker.moves.end("h", End.MOVED)
        await worker.moves.plans.released({V_HERE})

    on_worker(use)


def test_what_cannot_be_put_is_refused() -> None:
    async def use(worker: Worker) -> None:
        await worker.moves.hold("h", [V_THERE], str(HERE), 100.0)
        for record, arrays in [
            (b"nonsense", []),
            (SavedStates((SavedVariable(1, "float32", ()),), ()).to_bytes(), []),
            (SavedStates((SavedVariable(0, "float32", ()),), ()).to_bytes(), []),
            (
                SavedStates((SavedVariable(0, "float32", (3,)),), ()).to_bytes(),
                [np.zeros((2,), np.float32)],
            ),
        ]:
            with pytest.raises(InvalidArgumentError):
                await worker.moves.put("h", record, arrays)
        with pytest.raises(AbortedError, match="has ended"):
            await worker.moves.put("other", b"", [])
        await worker.moves.end("h", End.KEPT)

    on_worker(use)


def test_plans_that_come_in_spite_of_a_hold_wait_and_are_refused_after_the_move() -> None:
    async def use(worker: Worker) -> None:
        handle = (await worker.register([READ], {})).handle
        await worker.moves.hold("h", [V_HERE], str(THERE), 100.0)
        await worker.moves.save("h")
        running = asyncio.ensure_future(worker.run_plans(1, handle, []))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not running.done()
        await worker.moves.end("h", End.MOVED)
        with pytest.raises(AbortedError, match="may have done a part of its work") as caught:
            await running
        assert not isinstance(caught.value, MovedError), "it must not be run again"
        with pytest.raises(MovedError):
            await worker.register([READ], {})

    on_worker(use)

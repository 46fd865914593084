"""What a task does in saves and restores: what it keeps, drops and refuses when others are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jflow.base.cluster import Device, Task
from jflow.errors import (
    AbortedError,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    PermissionDeniedError,
)
from jflow.plan import VariableKey, VariableSpec
from jflow.state.checkpoint_files import ANYWHERE, exists, locate, open_checkpoint
from jflow.state.moves import StateId
from jflow.state.resources import VariableId, VariableSnapshot, Writing
from jflow.state.saves import StateItem, StateItems
from jflow.task.execution import local_devices
from jflow.task.worker import Worker

OWN = Task("worker", 0)
HERE = Device(OWN, "CPU", 0)
SAVE = "0123456789abcdef"
V = VariableId("", str(HERE), "v")
ITEM = StateItem("v", str(HERE), "variable", "", "v", dtype="float32", shape=())
ITEMS = StateItems((ITEM,)).to_bytes()


class NoTransport:
    """A transport that nothing uses."""

    async def deliver(self, *_: Any) -> None:
        raise AssertionError("nothing is sent")

    def __getitem__(self, task: Task) -> Any:
        raise AssertionError("nothing moves")


def on_worker(
    use: Callable[[Worker], Coroutine[Any, Any, None]], *, has_rights: bool = True
) -> None:
    """Runs a coroutine function on a worker that has a variable "v" of value 5."""

    async def run() -> None:
        with ThreadPoolExecutor() as threads:
            roots = ANYWHERE if has_rights else None
            worker = Worker(OWN, local_devices(OWN), NoTransport(), threads, checkpoint_roots=roots)
            spec = VariableSpec(VariableKey("", "v"), "float32", ())
            snapshot = VariableSnapshot(spec, np.float32(5.0).reshape(()))
            restoring = worker.containers.restoring({V: snapshot}, lambda _: jax.devices()[0])
            worker.containers.accesses.submit(restoring, lambda _: None)
            await use(worker)

    asyncio.run(run())


def is_leased(worker: Worker) -> bool:
    return worker.containers._variables[V].is_leased


def test_a_shard_whose_master_is_lost_is_kept_because_it_may_be_committed(tmp_path: Path) -> None:
    prefix = str(tmp_path / "model")

    async def use(worker: Worker) -> None:
        lost, other = worker.open_session(), worker.open_session()
        await lost.saves.take(SAVE, ITEMS, 1.0)
        record = await lost.saves.write(SAVE, prefix)
        lost.close()
        await other.saves.commit(SAVE, prefix, [record], {})

    on_worker(use)
    with open_checkpoint(prefix) as checkpoint:
        assert checkpoint.read("v") == 5.0


def test_a_save_that_is_given_up_leaves_no_file_and_no_lease(tmp_path: Path) -> None:
    prefix = str(tmp_path / "model")

    async def use(worker: Worker) -> None:
        session = worker.open_session()
        await session.saves.take(SAVE, ITEMS, 1.0)
        assert is_leased(worker)
        await session.saves.end(SAVE, is_committed=False)
        assert not is_leased(worker)
        with pytest.raises(AbortedError, match="given up"):
            await session.saves.write(SAVE, prefix)
        await session.saves.take(SAVE, ITEMS, 1.0)
        await session.saves.write(SAVE, prefix)
        assert not is_leased(worker), "it was written"
        await session.saves.end(SAVE, is_committed=False)

    on_worker(use)  # which waits for its threads
    assert not [*tmp_path.iterdir()]
    with locate(prefix) as place:
        assert not exists(place)


def test_what_a_lost_caller_has_begun_ends() -> None:
    async def use(worker: Worker) -> None:
        session = worker.open_session()
        await session.saves.pause("p", [ITEM.state], 100.0, is_exclusive=False, masters=[])
        await session.saves.take(SAVE, ITEMS, 1.0)
        session.close()
        assert not worker.moves.steps.directory._pauses
        assert not is_leased(worker)

    on_worker(use)


def test_a_pause_ends_after_its_time_and_says_so() -> None:
    async def use(worker: Worker) -> None:
        await worker.saves.pause("p", [ITEM.state], 0.01, is_exclusive=False, masters=[])
        while worker.moves.steps.directory._pauses:
            await asyncio.sleep(0.001)
        assert not await worker.saves.resume("p")
        await worker.saves.pause("p", [ITEM.state], 100.0, is_exclusive=False, masters=[])
        assert await worker.saves.resume("p")

    on_worker(use)


def test_a_snapshot_waits_for_a_step_in_the_middle_of_its_writes_and_gives_up() -> None:
    async def use(worker: Worker) -> None:
        inside, late = Writing(), Writing()
        assert worker.containers.enter(inside)
        with pytest.raises(DeadlineExceededError, match="1 steps that write several times"):
            await worker.saves.take(SAVE, ITEMS, 0.01)
        assert worker.containers.enter(late), "steps go on"
        assert not is_leased(worker)
        worker.containers.leave(inside)
        worker.containers.leave(late)
        assert await worker.saves.take(SAVE, ITEMS, 10.0) == 4

    on_worker(use)


def test_a_restore_that_is_given_up_lets_steps_write(tmp_path: Path) -> None:
    prefix = str(tmp_path / "model")

    async def use(worker: Worker) -> None:
        saves = worker.saves
        await saves.take(SAVE, ITEMS, 1.0)
        await saves.commit(SAVE, prefix, [await saves.write(SAVE, prefix)], {})
        await saves.load("r", prefix, ITEMS)
        await saves.close_writes("r", 1.0)
        writing = Writing()
        assert not worker.containers.enter(writing)
        await saves.forget("r")
        assert worker.containers.enter(writing)
        with pytest.raises(AbortedError, match="given up"):
            await saves.put("r", 1.0)

    on_worker(use)


def test_bad_calls_are_refused(tmp_path: Path) -> None:
    async def use(worker: Worker) -> None:
        there = str(Device(Task("worker", 1), "CPU", 0))
        elsewhere = StateItems((StateItem("v", there, "variable", "", "v"),))
        missing = StateItem("w", str(HERE), "variable", "", "w", dtype="float32")
        with pytest.raises(InvalidArgumentError, match="has no device /job:worker/task:1"):
            await worker.saves.take(SAVE, elsewhere.to_bytes(), 1.0)
        with pytest.raises(InvalidArgumentError, match="malformed"):
            await worker.saves.take(SAVE, b"\xc1", 1.0)
        with pytest.raises(FailedPreconditionError, match=r"uninitialized value.*'w'"):
            await worker.saves.take(SAVE, StateItems((ITEM, missing)).to_bytes(), 1.0)
        assert not is_leased(worker)
        await worker.saves.take(SAVE, ITEMS, 1.0)
        with pytest.raises(InvalidArgumentError, match="has begun already"):
            await worker.saves.take(SAVE, ITEMS, 1.0)
        with pytest.raises(PermissionDeniedError, match="no checkpoint roots"):
            await worker.saves.write(SAVE, str(tmp_path / "model"))

    on_worker(use, has_rights=False)
    assert not [*tmp_path.iterdir()]


def test_an_item_that_is_malformed_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="item 'v'"):
        StateItem("v", "/job:worker/task:x", "variable", "", "v")


def _set(worker: Worker, values: dict[VariableId, float]) -> None:
    """Gives variables of one number each a value."""
    snapshots = {
        one: VariableSnapshot(
            VariableSpec(VariableKey(one.container, one.name), "float32", ()),
            np.float32(value).reshape(()),
        )
        for one, value in values.items()
    }
    restoring = worker.containers.restoring(snapshots, lambda _: jax.devices()[0])
    worker.containers.accesses.submit(restoring, lambda _: None)
    restoring.result()


def test_a_task_saves_its_variables_by_itself_each_by_its_name_if_no_other_has_it(
    tmp_path: Path,
) -> None:
    prefix = str(tmp_path / "worker-0")

    async def use(worker: Worker) -> None:
        here = str(HERE)
        _set(worker, {VariableId("box", here, "v"): 6.0, VariableId("box", here, "w"): 7.0})
        _set(worker, {VariableId("", here, "written"): 8.0})
        without = [StateId(here, "variable", "", "written")]
        assert await worker.saves.save_variables(prefix, 5.0, without) == 3

    on_worker(use)
    with open_checkpoint(prefix) as checkpoint:
        saved = {key: float(checkpoint.read(key)) for key in [*checkpoint.keys()]}
    assert saved == {f"{HERE}/v": 5.0, f"box{HERE}/v": 6.0, "w": 7.0}


def test_a_task_that_saves_by_itself_does_not_wait_for_ever_for_a_program(tmp_path: Path) -> None:
    async def use(worker: Worker) -> None:
        assert worker.containers.enter(Writing())
        with pytest.raises(DeadlineExceededError):
            await worker.saves.save_variables(str(tmp_path / "worker-0"), 0.05)

    on_worker(use)
    assert not [*tmp_path.iterdir()], "nothing is left"


def test_a_task_without_variables_saves_nothing(tmp_path: Path) -> None:
    async def use(worker: Worker) -> None:
        without = [StateId(str(HERE), "variable", "", "v")]
        assert await worker.saves.save_variables(str(tmp_path / "worker-0"), 5.0, without) == 0

    on_worker(use)
    assert not [*tmp_path.iterdir()]

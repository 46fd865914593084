"""The same core by both drivers: every event gets the same answer, and leaves the same state."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from jflow.base.cluster import Device, Task
from jflow.base.deadline import FOREVER
from jflow.base.drivers import CoreDriver, LoopDriver, ThreadDriver
from jflow.errors import OpError
from jflow.plan import VariableKey, VariableSpec
from jflow.state.core import CheckpointSaver, StateMover, TaskEffects
from jflow.state.effects import Effect
from jflow.state.moves import MovedError, StateId, Use
from jflow.state.saves import StateItem, StateItems
from jflow.task.execution.classes import writes_of
from jflow.testing import wait_until
from tests.drawn import examples
from tests.state.core.simulation import CoreTask, Direct, plan_of
from tests.variables import set_variable

TASK = Task("ps", 0)
DEVICES = [Device(TASK, "CPU", i) for i in range(2)]
NAMES = ("x", "y")
N_WAITING = 3
"""How many calls may wait at a time."""


class CountedLoop(LoopDriver):
    """Counts the work that is performed."""

    n_works = 0

    async def work(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        self.n_works += 1
        try:
            return await super().work(function, *args, **kwargs)
        finally:
            self.n_works -= 1


class CountedThreads(ThreadDriver):
    """Knows which threads sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeping: set[Any] = set()

    def _sleep(self, call: Any, *args: Any) -> None:
        self.sleeping.add(call)
        try:
            super()._sleep(call, *args)
        finally:
            self.sleeping.discard(call)


class Side:
    """A task whose core one driver runs."""

    def __init__(self) -> None:
        proxies: dict[Task, Any] = {}
        self.task = CoreTask(self.made(), TASK, proxies, n_devices=2)
        proxies[TASK] = Direct(self.task)
        self.task.tasks = (TASK,)
        for name in NAMES:
            spec = VariableSpec(VariableKey("", name), "float32", ())
            set_variable(self.task.containers, DEVICES[0], spec, jnp.float32(0.0))
        self.calls: list[Future[Any]] = []
        self.uses: list[Use] = []

    def made(self) -> CoreDriver:
        raise NotImplementedError

    def start(self, call: Callable[[CoreTask], Coroutine[Any, Any, Any]]) -> Future[Any]:
        raise NotImplementedError

    def act(self, function: Callable[[], Any]) -> Any:
        raise NotImplementedError

    def is_idle(self) -> bool:
        """Whether everything that has not ended waits for an event of a later call."""
        raise NotImplementedError

    def values(self) -> list[Any]:
        """The values of the variables, by device and name; None where there is none."""
        found = [
            self.task.containers.peek(device, VariableKey("", name))
            for device in DEVICES
            for name in NAMES
        ]
        return [None if value is None else float(value) for value in found]


class OnLoop(Side):
    """By an event loop, in a thread of its own."""

    def made(self) -> CoreDriver:
        self._loop = asyncio.new_event_loop()
        self._threads = ThreadPoolExecutor(4)
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._driver = CountedLoop(self._threads)
        return self._driver

    def start(self, call: Callable[[CoreTask], Coroutine[Any, Any, Any]]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(call(self.task), self._loop)

    def act(self, function: Callable[[], Any]) -> Any:
        async def act() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(act(), self._loop).result()

    def is_idle(self) -> bool:
        async def passes() -> bool:
            while True:
                await asyncio.sleep(0)
                if not self._loop._ready:  # type: ignore[attr-defined]
                    return self._driver.n_works == 0

        return asyncio.run_coroutine_threadsafe(passes(), self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._threads.shutdown()


class InThreads(Side):
    """By the threads of the callers."""

    def made(self) -> CoreDriver:
        self._driver = CountedThreads()
        self._threads = ThreadPoolExecutor(N_WAITING + 4)
        return self._driver

    def start(self, call: Callable[[CoreTask], Coroutine[Any, Any, Any]]) -> Future[Any]:
        return self._threads.submit(lambda: self._driver.run(call(self.task)))

    def act(self, function: Callable[[], Any]) -> Any:
        with self._driver.lock:
            return function()

    def is_idle(self) -> bool:
        with self._driver.lock:
            sleeping = [*self._driver.sleeping]
            n_open = sum(not call.done() for call in self.calls)
            return len(sleeping) == n_open and not any(
                call.ready or not call.woken.empty() for call in sleeping
            )

    def close(self) -> None:
        self._threads.shutdown()


def said(call: Future[Any]) -> Any:
    """The answer of a call that has ended."""
    error = call.exception()
    if isinstance(error, MovedError):
        return type(error), sorted(error.moved.items())
    if isinstance(error, OpError):
        return type(error), error.message
    return error if error is not None else call.result()


class OneCore(RuleBasedStateMachine):
    """Steps, moves, saves, restores and steps that are applied once, on a task of two devices."""

    def __init__(self) -> None:
        super().__init__()
        self.sides: list[Any] = [OnLoop(), InThreads()]
        self.where = dict.fromkeys(NAMES, 0)
        self.n_calls = 0
        self.running: list[int] = []
        self.directory = Path(tempfile.mkdtemp(prefix="jflow-tests-"))
        self.saved: set[str] = set()

    @initialize()
    def begin(self) -> None:
        assert self.sides[0].values() == self.sides[1].values() == [0.0, 0.0, None, None]

    # Events -----------------------------------------------------------------------------------

    @rule(names=st.sets(st.sampled_from(NAMES), min_size=1), changes=st.booleans())
    def enter(self, names: set[str], changes: bool) -> None:
        """A step begins; it ends by `leave`."""
        if self.n_pending() >= N_WAITING:
            return
        states = frozenset(map(self.state, names))
        uses = []
        for side in self.sides:
            gate = side.task.moves.steps
            change = [frozenset({state}) for state in sorted(states)] if changes else []
            try:
                uses.append(side.act(partial(gate.directory.add, states, change)))
            except MovedError:
                return
        self.call(*(self.entering(use) for use in uses), uses=uses)

    def entering(self, use: Use) -> Callable[[CoreTask], Coroutine[Any, Any, Any]]:
        async def enter(task: CoreTask) -> str:
            await task.moves.steps.enter(use, object())
            return "entered"

        return enter

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """A step that has begun ends."""
        number = data.draw(st.sampled_from(self.running))
        for side in self.sides:
            gate, use = side.task.moves.steps, side.uses[number]
            side.act(lambda gate=gate, use=use: gate.leave(use))
        self.complete()

    @rule(name=st.sampled_from(NAMES))
    def move(self, name: str) -> None:
        """A variable moves to the other device, once no step uses it."""
        if self.n_pending() >= N_WAITING:
            return
        target = 1 - self.where[name]
        state = self.state(name)

        async def move(task: CoreTask) -> str:
            await StateMover(task.view, [state], str(DEVICES[target]), 600.0, 0.0).move()
            return "moved"

        if self.call(move) == "moved":
            self.where[name] = target

    @rule(name=st.sampled_from(["first", "second"]))
    def save(self, name: str) -> None:
        """Both variables are saved, if nothing is in the way."""
        if self.running or self.n_pending():
            return
        items = self.items()

        async def save(task: CoreTask) -> tuple[int, tuple[str, ...]]:
            # One directory a side: they would replace each other's files.
            prefix = str(self.directory / type(task.driver).__name__ / name)
            saver = CheckpointSaver(task.view, None, prefix, items, lambda _: 0.0, FOREVER)
            report = await saver.save(is_consistent=False, about={})
            return report.n_bytes, report.tasks

        self.call(save)
        self.saved.add(name)

    @rule(name=st.sampled_from(["first", "second"]))
    def restore(self, name: str) -> None:
        """Both variables are restored, or there is no such checkpoint."""
        if self.running or self.n_pending():
            return
        items = self.items()

        async def restore(task: CoreTask) -> int:
            prefix = str(self.directory / type(task.driver).__name__ / name)
            saver = CheckpointSaver(task.view, None, prefix, items, lambda _: 0.0, FOREVER)
            return (await saver.restore()).n_bytes

        if name in self.saved:
            self.call(restore)

    @rule(name=st.sampled_from(NAMES), sequence=st.integers(0, 3), attempt=st.integers(1, 3))
    def apply(self, name: str, sequence: int, attempt: int) -> None:
        """An attempt of a step adds one to a variable, unless an earlier one has."""
        if self.running or self.n_pending() or self.where[name] != 0:
            return
        effect, linked = Effect("client", 0, sequence, attempt), plan_of([name], TASK)

        async def apply(task: CoreTask) -> list[float]:
            effects: TaskEffects = task.effects
            found = await effects.apply_alone(
                effect, writes_of([linked]), lambda kept: task.steps.perform(linked, kept)
            )
            return [float(value) for value in found]

        self.call(apply)

    # Both sides -------------------------------------------------------------------------------

    def state(self, name: str) -> StateId:
        return StateId(str(DEVICES[self.where[name]]), "variable", "", name)

    def items(self) -> StateItems:
        found = []
        for name in NAMES:
            device = str(DEVICES[self.where[name]])
            found.append(StateItem(name, device, "variable", "", name, dtype="float32", shape=()))
        return StateItems(tuple(found))

    def call(self, *calls: Any, uses: list[Use] | None = None) -> Any:
        """Makes a call on both sides; returns its answer, None while it waits."""
        for n, side in enumerate(self.sides):
            side.calls.append(side.start(calls[n % len(calls)]))
            side.uses.append(None if uses is None else uses[n])
        number, self.n_calls = self.n_calls, self.n_calls + 1
        self.complete()
        one = self.sides[0].calls[number]
        return said(one) if one.done() else None

    def n_pending(self) -> int:
        return sum(not call.done() for call in self.sides[0].calls)

    def complete(self) -> None:
        """Waits until both sides agree on what has ended, and compares the answers."""
        wait_until(lambda: all(side.is_idle() for side in self.sides), "nothing goes on")
        one, other = self.sides
        assert [call.done() for call in one.calls] == [call.done() for call in other.calls]
        for a, b in zip(one.calls, other.calls, strict=True):
            if a.done():
                assert said(a) == said(b)
        self.running = [n for n, use in enumerate(one.uses) if use is not None and use.n_running]
        assert one.values() == other.values()

    def teardown(self) -> None:
        try:
            for side in self.sides:
                for number in self.running:
                    gate, use = side.task.moves.steps, side.uses[number]
                    side.act(lambda gate=gate, use=use: gate.leave(use))
            while any(not call.done() for side in self.sides for call in side.calls):
                for side in self.sides:
                    for number, call in enumerate(side.calls):
                        use = side.uses[number]
                        if use is not None and call.done() and use.n_running:
                            gate = side.task.moves.steps
                            side.act(lambda gate=gate, use=use: gate.leave(use))
        finally:
            for side in self.sides:
                side.close()
            shutil.rmtree(self.directory)


TestOneCore = OneCore.TestCase
TestOneCore.settings = settings(max_examples=examples(10), stateful_step_count=20)

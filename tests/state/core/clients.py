"""Clients of a simulated cluster, which count, move what they count, and save it."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from jflow.base.cluster import Device, Task
from jflow.base.deadline import FOREVER
from jflow.errors import AbortedError, OpError, UnavailableError
from jflow.state.core import CheckpointSaver, EffectRunner, SessionClaim, Staging, StateMover
from jflow.state.effects import Effect
from jflow.state.moves import MovedError, changes_of, states_of
from jflow.state.saves import StateItem, StateItems
from tests.state.core.simulation import (
    MASTER,
    SPARE,
    A,
    B,
    Participant,
    Proxy,
    SimulatedTask,
    Steps,
    World,
    device_of,
    plan_of,
    variable,
)


class Client:
    """A program that counts: each increment adds one to both variables, exactly once.

    Args:
      world: the cluster.
      name: what it is called in ledgers.
      claim: what it works under; None for nothing.

    Attributes:
      n_done: how many increments it knows to be done.
    """

    def __init__(self, world: World, name: str, where: dict[str, Task]) -> None:
        self.world, self.name, self.where = world, name, where
        self.n_done = 0
        self.claim: SessionClaim | None = None

    def master(self) -> SimulatedTask:
        """A master that is alive."""
        alive = [self.world.tasks[task] for task in (MASTER, SPARE)]
        return next(task for task in alive if not task.host.is_dead)

    async def increment(self, sequence: int) -> None:
        """Attempts an increment until it is done."""
        attempt = 1
        while True:
            effect = Effect(self.name, 0, sequence, attempt, acknowledged=sequence)
            try:
                await self.through_master(partial(self._increment, effect=effect))
            except MovedError as error:
                for state, device in error.moved.items():
                    self.where[state.name] = Device.parse(device).task
                await self.world.sleep(0.01)
            except AbortedError as error:
                if "claim" in error.message:
                    raise
                attempt += 1
                await self.world.sleep(0.1)
            except OpError:
                attempt += 1
                await self.world.sleep(0.1)
            else:
                self.n_done += 1
                return

    async def through_master(
        self, call: Callable[[SimulatedTask], Coroutine[Any, Any, Any]]
    ) -> Any:
        """Calls a master; raises UnavailableError if it dies meanwhile."""
        master, outcome, over = self.master(), list[Any](), self.world.event()

        async def handle() -> None:
            try:
                outcome.append(await call(master))
            except Exception as error:
                outcome.append(error)
            over.set()

        with self.world.on(master.host):
            self.world.start(handle())
        while not outcome:
            if master.host.is_dead:
                raise UnavailableError(f"{master.task} has died")
            async with _Within(self.world, over):
                pass
        if isinstance(outcome[0], Exception):
            raise outcome[0]
        return outcome[0]

    async def _increment(self, master: SimulatedTask, effect: Effect) -> None:
        by_task: dict[Task, list[str]] = {}
        for name in ("x", "y"):
            by_task.setdefault(self.where[name], []).append(name)
        plans = [plan_of(names, task).plan for task, names in by_task.items()]
        gate = master.view.gate
        use = gate.directory.add(states_of(plans), changes_of(plans), self)
        await gate.enter(use, object())
        try:
            entries = {task: Participant(Proxy(self.world, master.task, task)) for task in by_task}
            claim = None if self.claim is None else self.claim.claim

            async def run(staging: Staging | None) -> list[Any]:
                found = await self.world.all_of(
                    entries[task].proxy.call(Steps.run, 1, names, staging, claim)
                    for task, names in by_task.items()
                )
                return [value for values in found for value in values]

            await EffectRunner(master.view, entries, effect).run_attempt(run)
        finally:
            gate.leave(use)
            gate.directory.remove(use)

    async def move(self, name: str) -> None:
        """Moves a variable to the other task; errors are those of faults."""
        target = B if self.where[name] == A else A
        states = [variable(name, self.where[name])]
        try:
            await self.through_master(
                lambda master: StateMover(master.view, states, device_of(target), 2.0, 2.0).move()
            )
        except MovedError as error:
            for state, device in error.moved.items():
                self.where[state.name] = Device.parse(device).task
        except OpError:
            return
        else:
            self.where[name] = target

    async def save(self, prefix: str) -> bool:
        """Saves both variables; returns whether that is known to have succeeded."""
        items = StateItems(
            tuple(
                StateItem(name, device_of(task), "variable", "", name, dtype="float32", shape=())
                for name, task in sorted(self.where.items())
            )
        )
        try:
            await self.through_master(
                lambda master: CheckpointSaver(
                    master.view, self, prefix, items, lambda _: 2.0, FOREVER, self.claim
                ).save(is_consistent=True, about={})
            )
        except MovedError as error:
            for state, device in error.moved.items():
                self.where[state.name] = Device.parse(device).task
            return False
        except OpError:
            return False
        return True


class _Within:
    """Waits for an event, or for a short while."""

    def __init__(self, world: World, over: Any) -> None:
        self._world, self._over = world, over

    async def __aenter__(self) -> None:
        try:
            async with self._world.limit(0.05):
                await self._over.wait()
        except TimeoutError:
            pass

    async def __aexit__(self, *_: object) -> None:
        pass


def rng_of(seed: int) -> random.Random:
    return random.Random(f"client {seed}")

"""A coordinator in a simulation: the scheduler of closures, with links that are coroutines.

It does what `training/coordinator/engine.py` does in threads: the scheduler decides, each worker
has a session on its own master, and a later coordinator fences off an earlier one by its claim.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from jflow.base.deadline import Deadline
from jflow.errors import CancelledError, FencedError, OpError
from jflow.state.effects import ConflictError, Effect, SupersededError
from jflow.training.coordinator.events import (
    Action,
    CancelAttempt,
    Closure,
    Complete,
    Dispatch,
    Drop,
    FailClosure,
)
from jflow.training.coordinator.losses import LossKind, is_rolled_back, loss_of
from jflow.training.coordinator.scheduler import ClosureScheduler
from tests.simulation.clients import CALL_S, Client
from tests.simulation.cluster import SERVERS, WORKERS, Cluster
from tests.simulation.histories import History
from tests.simulation.steps import EPOCH, MIRROR, TOTAL
from tests.simulation.workloads import Values, Work, Workload

_NAME = "coordinator"
_TICK_S = 0.2
_PAUSE_S = 0.05


class Coordinator:
    """One life of a coordinator, which runs closures exactly once.

    Args:
      cluster: the cluster.
      ordinal: which life it is.
      n_closures: how many closures it runs.
      history: takes each of them.

    Attributes:
      client: the session of its first link.
      seen: what each closure has found in the variable of the last writer, in order of their ends.
      is_fenced: whether a later one has taken over.
      ended: the closures that have ended.
    """

    def __init__(self, cluster: Cluster, ordinal: int, n_closures: int, history: History) -> None:
        self.ordinal = ordinal
        self._name = f"coordinator-{ordinal}"
        self.client = Client(cluster, self._name, WORKERS)
        self.seen: list[float] = []
        self.is_fenced = False
        self.ended: set[int] = set()
        self._cluster, self._history, self._n = cluster, history, n_closures
        self._scheduler = ClosureScheduler(len(WORKERS))
        self._links = [
            Client(cluster, f"{self._name}.{i}", [worker], self.client.host)
            for i, worker in enumerate(WORKERS)
        ]
        self._attempts: dict[int, asyncio.Task[None]] = {}
        self._lost = [asyncio.Event() for _ in WORKERS]
        self._calls: dict[int, Any] = {}

    async def run(self) -> None:
        """Claims, and runs all closures, until they have ended or it is fenced off."""
        loop = asyncio.get_running_loop()
        await self.client.until_done(lambda: self.client.claim(_NAME))
        self._cluster.trace.note("claimed", self._name)
        background = [asyncio.create_task(self._tick())]
        for index, link in enumerate(self._links):
            link.claims = self.client.claims
            background.append(asyncio.create_task(self._connect(index)))
        for number in range(self._n):
            call = self._history.call(self._name, "count")
            self._calls[number] = call, call.__enter__()
            closure = Closure(number, kind="count", is_exactly_once=True, is_repeatable=True)
            self._act(self._scheduler.add(closure, loop.time()))
        while not (self.is_fenced or self._scheduler.is_idle):
            await asyncio.sleep(_TICK_S)
        running = {*background, *self._attempts.values()}
        while running:
            # More than once: a call whose reply has come nevertheless goes on with that.
            for one in running:
                one.cancel()
            _, running = await asyncio.wait(running, timeout=_TICK_S)
        for link in (*self._links, self.client):
            with suppress(OpError):
                await link.leave()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._act(self._scheduler.tick(asyncio.get_running_loop().time()))

    async def _connect(self, index: int) -> None:
        """Keeps a link connected."""
        link, loop = self._links[index], asyncio.get_running_loop()
        while not self.is_fenced:
            try:
                await link.session(Deadline(CALL_S))
            except FencedError:
                self.is_fenced = True
                return
            except OpError:
                await asyncio.sleep(_PAUSE_S)
                continue
            self._lost[index].clear()
            self._act(self._scheduler.worker_up(index, loop.time()))
            await self._lost[index].wait()
            await link.leave()
            await asyncio.sleep(_PAUSE_S)

    def _act(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Dispatch():
                    self._attempts[action.attempt] = asyncio.create_task(self._attempt(action))
                case CancelAttempt(number):
                    if number in self._attempts:
                        self._attempts[number].cancel()
                case Complete(number):
                    self.ended.add(number)
                    call, _ = self._calls[number]
                    call.__exit__(None, None, None)
                case FailClosure(number) | Drop(number):
                    self.ended.add(number)
                case _:
                    raise AssertionError(f"nothing has asked for {action}")

    async def _attempt(self, action: Dispatch) -> None:
        scheduler, loop = self._scheduler, asyncio.get_running_loop()
        claims = self.client.claims
        assert claims is not None
        (number,) = action.closures
        n_ended = scheduler.closures.n_ended
        effect = Effect(*claims, number, action.ordinal, n_ended)
        link = self._links[action.worker]
        try:
            values = await link.run("close_over", [float(self.ordinal)], effect)
        except (OpError, asyncio.CancelledError) as error:
            self._cluster.trace.note("attempt", self._name, number, action.ordinal, error)
            failed = error if isinstance(error, OpError) else CancelledError("cancelled")
            self._failed(action, failed)
        else:
            former, _, total, _ = values
            self.seen.append(former)
            self._calls[number][1].value = total
            self._act(scheduler.finished(action.attempt, loop.time()))
        finally:
            self._attempts.pop(action.attempt, None)

    def _failed(self, action: Dispatch, error: OpError) -> None:
        """As `Engine.failed`: is it the closure that has failed, or has something been lost?"""
        scheduler, worker = self._scheduler, action.worker
        now = asyncio.get_running_loop().time()
        if self.is_fenced:
            return
        loss = loss_of(error, WORKERS[worker], SERVERS)
        if isinstance(error, FencedError):
            self.is_fenced = True
        elif isinstance(error, SupersededError | ConflictError):
            self._act(scheduler.lost(action.attempt, now))
        elif loss is None:
            rolled_back = is_rolled_back(error)
            self._act(scheduler.failed(action.attempt, error, now, is_rolled_back=rolled_back))
        else:
            if loss.kind is LossKind.WORKER:
                self._act(scheduler.worker_down(worker, now))
            self._act(scheduler.lost(action.attempt, now))
            if loss.kind is not LossKind.WORKER:
                self._act(scheduler.worker_down(worker, now))
            self._lost[worker].set()


class Coordinating(Workload):
    """A coordinator that counts by closures, and at times a later one that takes over."""

    name = "coordinating"

    def __init__(self, cluster: Cluster, rng: Random, clock: Iterator[int]) -> None:
        super().__init__(cluster, rng, clock)
        n_lives = rng.choice([1, 1, 2])
        self._lives = [
            Coordinator(cluster, n + 1, rng.randint(2, 6), self.history) for n in range(n_lives)
        ]
        self.clients = [life.client for life in self._lives]
        self._begins = [0.0] + [rng.random() * 2 for _ in range(n_lives - 1)]

    def works(self) -> list[tuple[Client, Work]]:
        return [
            (life.client, self._work(life, after))
            for life, after in zip(self._lives, self._begins, strict=True)
        ]

    async def _work(self, life: Coordinator, after: float) -> None:
        if after:
            while self._lives[0].client.claims is None and not self._lives[0].client.host.is_dead:
                await asyncio.sleep(_PAUSE_S)
            await asyncio.sleep(after)
        await life.run()

    def check(self, values: Values) -> Iterator[str]:
        known = [one for one in self.history.operations if one.is_known]
        if values[TOTAL] != values[MIRROR]:
            yield f"closures have counted to {values[TOTAL]:g} and to {values[MIRROR]:g}"
        if not len(known) <= values[TOTAL] <= len(self.history.operations):
            yield (
                f"{TOTAL} is {values[TOTAL]:g} after {len(known)} closures of "
                f"{len(self.history.operations)}"
            )
        for life in self._lives:
            if any(former > life.ordinal for former in life.seen):
                yield f"{life.client.name} was not fenced off: it has seen {life.seen}"
            # The first to end may be an earlier attempt that was answered again.
            if len(known) == 0 and life.seen:
                yield "a closure has a result that was not counted"
        last = self._lives[-1]
        if last.seen and values[EPOCH] != last.ordinal:
            yield f"a coordinator that was fenced off has written: {values[EPOCH]:g}"

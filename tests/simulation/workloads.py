"""What clients of a simulation do, and what has to hold of it in the end."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

from jflow.base.cluster import Task
from jflow.errors import AbortedError, DeadlineExceededError, OpError
from jflow.state.checkpoint_files import open_checkpoint
from jflow.state.effects import Effect
from tests.simulation.clients import Client
from tests.simulation.cluster import SERVERS, WORKERS, Cluster
from tests.simulation.histories import History, Operation, check_count, check_queue, check_register
from tests.simulation.steps import ALONE, COUNTERS, REGISTER

Work = Coroutine[Any, Any, None]
Values = Mapping[str, float]


class Workload:
    """Clients that do one kind of thing.

    Args:
      cluster: the cluster.
      rng: draws what they do.
      clock: see `History`.

    Attributes:
      clients: the clients.
      violations: what has gone wrong while they worked.
      may_die: whether its clients may be killed.
    """

    name = ""
    may_die = True

    def __init__(self, cluster: Cluster, rng: Random, clock: Iterator[int]) -> None:
        self.cluster, self.rng = cluster, rng
        self.clients: list[Client] = []
        self.violations: list[str] = []
        self.history = History(clock)

    def client(self) -> Client:
        """Returns a new client of the workload."""
        masters = self.rng.sample(WORKERS, 2)
        client = Client(self.cluster, f"{self.name}-{len(self.clients)}", masters)
        self.clients.append(client)
        return client

    def works(self) -> list[tuple[Client, Work]]:
        """Returns what each client does."""
        raise NotImplementedError

    def check(self, values: Values) -> Iterator[str]:
        """Yields what does not hold, given the variables in the end."""
        raise NotImplementedError

    async def pause(self) -> None:
        """Waits for a short while, or not at all."""
        drawn = self.rng.random()
        if drawn > 0.5:
            await asyncio.sleep(drawn * drawn * 0.3)


class Rollback(NamedTuple):
    """A recovery of lost state.

    Attributes:
      began, ended: when the state was lost, and when it was restored.
      count: what was restored.
      failed: when a restore began that failed, and so may have restored some of it; None if none
        did.
    """

    began: int
    ended: int
    count: float
    failed: int | None


class Counting(Workload):
    """Two variables on two tasks, counted together, exactly once.

    Attributes:
      rollbacks: the recoveries of both.
    """

    name = "counting"

    def __init__(self, cluster: Cluster, rng: Random, clock: Iterator[int]) -> None:
        super().__init__(cluster, rng, clock)
        self.rollbacks: list[Rollback] = []
        self._unequal: list[tuple[Operation, str]] = []

    def works(self) -> list[tuple[Client, Work]]:
        n = self.rng.randint(1, 2)
        return [
            (client, self._work(client, self.rng.randint(1, 4)))
            for client in [self.client() for _ in range(n)]
        ]

    async def _work(self, client: Client, n: int) -> None:
        for sequence in range(n):
            await self.pause()
            with self.history.call(client.name, "count") as call:
                x, y = await self._count(client, sequence)
                call.value = x
            if x != y:
                self._unequal.append((call, f"one step has counted to {x:g} and to {y:g}"))

    async def _count(self, client: Client, sequence: int) -> list[float]:
        for attempt in itertools.count(1):
            effect = Effect(client.name, 0, sequence, attempt, acknowledged=sequence)
            try:
                return await client.run("count", effect=effect)
            except OpError as error:
                self.cluster.trace.note("error", client.name, sequence, attempt, error)
                await asyncio.sleep(0.05)
        raise AssertionError

    def check(self, values: Values) -> Iterator[str]:
        in_part = [(one.failed, one.ended) for one in self.rollbacks if one.failed is not None]
        for call, violation in self._unequal:
            if not any(begin < call.ended and call.invoked < end for begin, end in in_part):
                yield violation
        x, y = (values[name] for name in COUNTERS)
        if x != y:
            yield f"what is counted together is {x:g} and {y:g} in the end"
        if not self.rollbacks:
            yield from check_count(self.history, x, "x")
            return
        # Of what was counted before, only what is in the checkpoint may be there, and all of it.
        last, calls = self.rollbacks[-1], self.history.operations
        least = sum(one.is_known and one.invoked > last.ended for one in calls)
        most = sum(one.ended > last.began for one in calls)
        if not last.count + least <= x <= last.count + most:
            yield f"x is {x:g} after {last.count:g} were restored and {least} to {most} counted"


class CountingAlone(Workload):
    """A variable that steps of a single write count, of sessions that repeat what is lost."""

    name = "alone"

    def works(self) -> list[tuple[Client, Work]]:
        n = self.rng.randint(1, 2)
        return [
            (client, self._work(client, self.rng.randint(1, 5)))
            for client in [self.client() for _ in range(n)]
        ]

    async def _work(self, client: Client, n: int) -> None:
        for _ in range(n):
            await self.pause()
            with suppress(OpError), self.history.call(client.name, "count") as call:
                (call.value,) = await client.run_once("count_alone")

    def check(self, values: Values) -> Iterator[str]:
        yield from check_count(self.history, values[ALONE], ALONE)


class Registering(Workload):
    """A variable that several clients read and write."""

    name = "register"

    def works(self) -> list[tuple[Client, Work]]:
        self._values = itertools.count(1)
        return [
            (client, self._work(client, self.rng.randint(2, 5)))
            for client in [self.client() for _ in range(self.rng.randint(2, 3))]
        ]

    async def _work(self, client: Client, n: int) -> None:
        for _ in range(n):
            await self.pause()
            if self.rng.random() < 0.5:
                value = float(next(self._values))
                with suppress(OpError), self.history.call(client.name, "write", value):
                    await client.run_once("write", [value])
            else:
                with suppress(OpError), self.history.call(client.name, "read") as call:
                    (call.value,) = await client.run("read")

    def check(self, values: Values) -> Iterator[str]:
        with self.history.call("the end", "read", values[REGISTER]):
            pass
        yield from check_register(self.history, 0.0)


class Queueing(Workload):
    """A queue of a few elements between producers and consumers."""

    name = "queue"

    def works(self) -> list[tuple[Client, Work]]:
        works = []
        elements = itertools.count(1)
        for _ in range(self.rng.randint(1, 2)):
            client = self.client()
            works.append((client, self._put(client, self.rng.randint(1, 4), elements)))
        for _ in range(self.rng.randint(1, 2)):
            client = self.client()
            works.append((client, self._get(client, self.rng.randint(1, 4))))
        return works

    def _timeout(self) -> float:
        return self.rng.choice([0.2, 1.0, 4.0])

    async def _put(self, client: Client, n: int, elements: Iterator[int]) -> None:
        for _ in range(n):
            await self.pause()
            element = float(next(elements))
            with suppress(OpError), self.history.call(client.name, "put", element):
                await client.run("enqueue", [element], timeout=self._timeout())

    async def _get(self, client: Client, n: int) -> None:
        for _ in range(n):
            await self.pause()
            with suppress(OpError), self.history.call(client.name, "get") as call:
                (call.value,) = await client.run("dequeue", timeout=self._timeout())

    async def drain(self, client: Client) -> None:
        """Gets what is left, when nothing fails any more."""
        while True:
            try:
                with self.history.call(client.name, "get") as call:
                    (call.value,) = await client.run("dequeue", timeout=1.0)
            except DeadlineExceededError:
                self.history.operations.pop()  # it has taken nothing
                return
            except AbortedError:
                self.history.operations.pop()
                continue

    def check(self, values: Values) -> Iterator[str]:
        yield from check_queue(self.history)


class Moving(Workload):
    """Moves variables between the parameter servers."""

    name = "mover"

    def works(self) -> list[tuple[Client, Work]]:
        client = self.client()
        return [(client, self._work(client, self.rng.randint(1, 3)))]

    async def _work(self, client: Client, n: int) -> None:
        for _ in range(n):
            await self.pause()
            name = self.rng.choice([*COUNTERS, ALONE, REGISTER])
            target = SERVERS[client.places[name] == SERVERS[0]]
            has_moved = await client.move(name, target)
            self.cluster.trace.note("moved" if has_moved else "not moved", name, target)

    def check(self, values: Values) -> Iterator[str]:
        yield from ()


class Draining(Workload):
    """A parameter server leaves, and the other one has what was on it."""

    name = "drainer"

    def works(self) -> list[tuple[Client, Work]]:
        task, heir = self.rng.sample(SERVERS, 2)
        return [(client, self._work(client, task, heir)) for client in (self.client(),)]

    async def _work(self, client: Client, task: Task, heir: Task) -> None:
        await asyncio.sleep(self.rng.random() * 2.0)
        for _ in range(3):
            await self.pause()
            has_left = await client.drain(task, heir)
            self.cluster.trace.note("drained" if has_left else "not drained", task, heir)
            if has_left:
                break

    def check(self, values: Values) -> Iterator[str]:
        yield from ()


class Saving(Workload):
    """Saves all variables, consistently.

    Attributes:
      good: the checkpoints that are known to be whole, and the counts in them.
    """

    name = "saver"

    def __init__(self, cluster: Cluster, rng: Random, clock: Iterator[int]) -> None:
        super().__init__(cluster, rng, clock)
        self.good: list[tuple[str, float]] = []
        self._numbers = itertools.count()

    def works(self) -> list[tuple[Client, Work]]:
        client = self.client()
        return [(client, self._work(client, self.rng.randint(1, 2)))]

    async def _work(self, client: Client, n: int) -> None:
        for _ in range(n):
            await self.pause()
            await self.save(client)

    async def save(self, client: Client) -> bool:
        """Saves once; returns whether that has succeeded."""
        prefix = f"{self.cluster.directory}/model-{next(self._numbers)}"
        has_saved = await client.save(prefix)
        self.cluster.trace.note("saved" if has_saved else "not saved", prefix)
        if has_saved:
            self._look_at(prefix)
        return has_saved

    def _look_at(self, prefix: str) -> None:
        with open_checkpoint(prefix) as checkpoint:
            x, y = (float(checkpoint.read(name)) for name in COUNTERS)
        self.good.append((prefix, x))
        if x != y:
            self.violations.append(f"{prefix} has a part of a step: {x:g} and {y:g}")

    def check(self, values: Values) -> Iterator[str]:
        yield from ()


class Recovering(Saving):
    """Parameter servers die; both are restored from the last checkpoint.

    Args:
      cluster, rng, clock: as of every workload.
      counting: what is rolled back.
    """

    name = "recovery"
    may_die = False

    def __init__(
        self, cluster: Cluster, rng: Random, clock: Iterator[int], counting: Counting
    ) -> None:
        super().__init__(cluster, rng, clock)
        self._counting, self._clock = counting, clock

    async def _work(self, client: Client, n: int) -> None:
        while not self.good:
            await self.save(client)
        for _ in range(n):
            await asyncio.sleep(self.rng.random() * 2.0)
            await self._lose(client)
            if self.rng.random() < 0.7:
                await self.save(client)

    async def _lose(self, client: Client) -> None:
        cluster, lost = self.cluster, self.rng.choice(SERVERS)
        began = next(self._clock)
        cluster.kill(lost)
        await asyncio.sleep(self.rng.random())
        cluster.restart(lost)
        prefix, count = self.good[-1]
        begin, failed = next(self._clock), None
        while not await client.restore(prefix):
            failed = begin
            await asyncio.sleep(0.1)
        self._counting.rollbacks.append(Rollback(began, next(self._clock), count, failed))
        cluster.trace.note("restored", prefix, count)

"""One schedule: a cluster, clients and faults that a seed draws, and what holds in the end."""

from __future__ import annotations

import asyncio
import gc
import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import jax.numpy as jnp

from jflow.base.cluster import Device
from jflow.plan import VariableKey, VariableSpec
from tests.simulation.clients import Client
from tests.simulation.cluster import TASKS, WORKERS, Cluster, Life
from tests.simulation.coordinators import Coordinating
from tests.simulation.environment import simulated
from tests.simulation.loop import SimulatedLoop, StuckError, collect
from tests.simulation.steps import DTYPE, PLACES, VARIABLES
from tests.simulation.trace import Trace
from tests.simulation.workloads import (
    Counting,
    CountingAlone,
    Draining,
    Moving,
    Queueing,
    Recovering,
    Registering,
    Saving,
    Values,
    Workload,
)
from tests.variables import set_variable

LIVENESS_S = 200.0
"""After how much virtual time without faults everything must be over."""
_RESOLVED_S = 60.0
"""How long what is left in doubt may take to be resolved without faults."""
_COLLECTED_AFTER = 20
"""How many schedules leave their cycles of references to the next collection of garbage."""
_FAULTS_S = 6.0
"""For how long there are faults, at most."""
_P_RECOVERY = 0.15
"""How probable it is that parameter servers die, and are restored."""
_P_DRAIN = 0.15
"""How probable it is, otherwise, that a parameter server leaves."""
_KINDS: tuple[type[Workload], ...] = (
    Counting,
    CountingAlone,
    Registering,
    Queueing,
    Coordinating,
    Moving,
    Saving,
)


@dataclass
class Outcome:
    """What has come of a schedule.

    Attributes:
      seed: its seed.
      violations: what must not be, in words.
      digest: the hash of all of its events.
      n_steps: how many callbacks have run.
      n_calls: how many calls of clients there were.
      seconds: how much virtual time has passed.
      told: what it was made of.
    """

    seed: int
    violations: list[str] = field(default_factory=list)
    digest: str = ""
    n_steps: int = 0
    n_calls: int = 0
    seconds: float = 0.0
    told: str = ""

    def report(self) -> str:
        """Says what has gone wrong, and how to see it again."""
        lines = [f"python -m tests.simulation --seed {self.seed}  # {self.told}"]
        return "\n    ".join((*lines, *self.violations))


def run_schedules(first: int, last: int) -> Iterator[Outcome]:
    """Runs the schedules of some seeds."""
    with _uncollected():
        for seed in range(first, last):
            yield run_schedule(seed)
            if seed % _COLLECTED_AFTER == 0:
                collect()


def run_schedule(seed: int, show: Callable[[str], object] | None = None) -> Outcome:
    """Runs the schedule of a seed.

    Args:
      seed: decides everything.
      show: takes a line for each event; None for no text.
    """
    memory = Path("/dev/shm")
    directory = tempfile.mkdtemp(
        prefix="jflow-simulation-", dir=memory if memory.is_dir() else None
    )
    try:
        with _uncollected():
            loop = SimulatedLoop(seed)
            trace = Trace(loop.time, directory, show)
            with loop.running(), simulated(loop):
                return _Schedule(seed, loop, trace, directory).run()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _uncollected() -> Iterator[None]:
    """A context in which no finalizer runs at a moment that nothing has drawn."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    gc.freeze()  # what is there before is not looked at
    try:
        yield
    finally:
        collect()
        gc.unfreeze()
        gc.enable()


class _Schedule:
    def __init__(self, seed: int, loop: SimulatedLoop, trace: Trace, directory: str) -> None:
        self._seed, self._loop, self._trace = seed, loop, trace
        self._rng = rng = Random(f"schedule {seed}")
        self._cluster = Cluster(loop, trace, directory)
        self._clock = itertools.count()
        self._is_healing = False
        self._fate = loop.host("fate")
        self._workloads = [*self._drawn()]
        self._p_fault = rng.choice([0.0, 0.005, 0.02, 0.02, 0.08])
        self._n_disturbances = rng.choice([0, 0, 1, 1, 2, 3])

    def _drawn(self) -> Iterator[Workload]:
        """A few kinds at a time, so that each gets more of what happens."""
        rng, cluster, clock = self._rng, self._cluster, self._clock
        if rng.random() < _P_RECOVERY:
            yield (counting := Counting(cluster, Random(f"counting {self._seed}"), clock))
            yield Recovering(cluster, Random(f"recovery {self._seed}"), clock, counting)
            return
        kinds = rng.sample(_KINDS, rng.randint(1, 3))
        if all(issubclass(kind, Moving | Saving) for kind in kinds):
            kinds.append(Counting)
        for kind in sorted(kinds, key=_KINDS.index):
            yield kind(cluster, Random(f"{kind.name} {self._seed}"), clock)
        if (drains := Random(f"{Draining.name} {self._seed}")).random() < _P_DRAIN:
            yield Draining(cluster, drains, clock)

    def run(self) -> Outcome:
        outcome = Outcome(self._seed)
        names = ", ".join(one.name for one in self._workloads)
        outcome.told = f"{names}; {self._p_fault:g} breaks, {self._n_disturbances} disturbances"
        self._trace.note("schedule", outcome.told)
        try:
            outcome.violations += self._violations()
        except StuckError as error:
            outcome.violations.append(f"{error}: {self._stage}{self._open_calls()}")
        outcome.violations += self._loop.failures
        outcome.digest, outcome.n_steps = self._trace.digest(), self._loop.n_steps
        outcome.seconds = self._loop.time()
        outcome.n_calls = sum(len(one.history.operations) for one in self._workloads)
        for violation in outcome.violations:
            self._trace.note("violation", violation)
        return outcome

    def _open_calls(self) -> str:
        waiting = [
            f"{one.client} {one.kind} {one.value}"
            for workload in self._workloads
            for one in workload.history.operations
            if not one.is_known
        ]
        return f"; open or unknown: {waiting}" if waiting else ""

    def _violations(self) -> Iterator[str]:
        loop, cluster = self._loop, self._cluster
        self._stage = "servers start"
        loop.run_until(lambda: cluster.is_up, LIVENESS_S)
        self._initialize()
        cluster.network.p_fault = self._p_fault
        drawn = [(one, works) for one in self._workloads for works in one.works()]
        works = [(client, client.host.start(work)) for _, (client, work) in drawn]
        mortal = [client for workload, (client, _) in drawn if workload.may_die]
        fate = self._fate.start(self._disturb(mortal))

        def are_done() -> bool:
            return all(work.done() or client.host.is_dead for client, work in works)

        self._stage = "clients work"
        loop.run_until(lambda: fate.done() and (self._is_healing or are_done()), 10 * _FAULTS_S)
        self._heal()
        loop.run_until(are_done, LIVENESS_S)
        for client, work in works:
            if work.done():
                work.result()  # raises what the simulation itself has failed with
            if not client.host.is_dead:
                client.host.start(client.leave())
        self._resolve()
        values = self._look()
        for workload in self._workloads:
            yield from workload.violations
            yield from workload.check(values)
        yield from self._resolve()

    def _resolve(self) -> list[str]:
        """Waits until servers have nothing of clients that are gone; returns what they still have.

        A step in doubt is decided soon, and a session whose client is out of reach ends.
        """
        self._stage = "what is in doubt is resolved"
        lives = self._cluster.lives.values()

        async def resolved() -> list[str]:
            for _ in range(int(_RESOLVED_S)):
                await asyncio.sleep(1.0)
                left = [one for life in lives for one in left_behind(life)]
                if not left:
                    break
            return left

        resolving = self._fate.start(resolved())
        self._loop.run_until(resolving.done, LIVENESS_S)
        left: list[str] = resolving.result()
        return left

    def _initialize(self) -> None:
        for name in VARIABLES:
            task = PLACES[name]
            containers = self._cluster.lives[task].worker.containers
            spec = VariableSpec(VariableKey("", name), DTYPE, ())
            set_variable(containers, Device(task, "CPU", 0), spec, jnp.float32(0.0))

    # Faults -------------------------------------------------------------------------------------

    async def _disturb(self, clients: list[Client]) -> None:
        """Makes the disturbances of the schedule, and heals all in the end."""
        rng = self._rng
        ends = _FAULTS_S * rng.random()
        for _ in range(self._n_disturbances):
            await asyncio.sleep(rng.random() * ends / self._n_disturbances)
            await self._disturb_once(clients)
        left = ends - self._loop.time()
        await asyncio.sleep(max(left, 0.0))
        self._is_healing = True

    async def _disturb_once(self, clients: list[Client]) -> None:
        rng, cluster = self._rng, self._cluster
        seconds = rng.choice([0.05, 0.5, 3.0]) * rng.random()
        match rng.choice(["kill", "kill", "pause", "separate", "separate", "client"]):
            case "kill":
                task = rng.choice(WORKERS)
                cluster.kill(task)
                await asyncio.sleep(seconds)
                cluster.restart(task)
            case "pause":
                task = rng.choice(TASKS)
                cluster.pause(task, True)
                await asyncio.sleep(seconds * rng.choice([1, 8]))
                cluster.pause(task, False)
            case "separate":
                hosts = [life.host.name for life in cluster.lives.values()]
                one, other = rng.sample([*hosts, *(one.host.name for one in clients)], 2)
                self._trace.note("separate", one, other)
                cluster.network.separate(one, other)
                await asyncio.sleep(seconds * rng.choice([1, 8]))
                cluster.network.cut.discard(frozenset((one, other)))
                self._trace.note("join", one, other)
            case _:
                host = rng.choice(clients).host
                self._trace.note("kill", host.name)
                host.die()
                cluster.network.died(host)

    def _heal(self) -> None:
        self._trace.note("heal")
        self._cluster.network.heal()
        for task in TASKS:
            self._cluster.pause(task, False)
            self._cluster.restart(task)

    # The end ------------------------------------------------------------------------------------

    def _look(self) -> Values:
        """Returns the values of all variables, and empties the queue."""
        self._stage = "a new client reads"
        client = Client(self._cluster, "reader")
        values: dict[str, float] = {}

        async def read() -> None:
            found = await client.until_done(lambda: client.run("read_all"))
            values.update(zip(VARIABLES, found, strict=True))
            for workload in self._workloads:
                if isinstance(workload, Queueing):
                    await workload.drain(client)
            await client.leave()

        reading = client.host.start(read())
        self._loop.run_until(reading.done, LIVENESS_S)
        reading.result()
        return values


def left_behind(life: Life) -> Iterator[str]:
    """Yields what a server still has of clients that are gone."""
    worker, server, task = life.worker, life.server, life.task
    context, moves = worker._context, worker.moves
    found = {
        "sessions": server.master._sessions,
        "registered plans": worker._registered,
        "steps": context.started,
        "plans": context.plans,
        "values of steps": context.rendezvous._steps,
        "parked attempts": context.parked._parked,
        "running programs": worker.long_programs._running,
        "queued programs": worker.long_programs._queued,
        "undecided steps": worker.effects._open,
        "holds": moves._holds,
        "pauses": worker.saves._open.pauses,
        "runs under claims": worker.claims._running,
    }
    for key, cell in worker.containers.resources.cells().items():
        found[f"waits for {key.name}"] = cell.waiting(1)
    for name, gate in {"of steps": moves.steps, "of plans": moves.plans}.items():
        found |= {
            f"holds {name}": gate.directory._holds,
            f"pauses {name}": gate.directory._pauses,
            f"waits {name}": gate.waiting,
        }
    for what, left in found.items():
        if left:
            yield f"{task} still has {len(left)} {what}: {[*left][:3]}"

"""A cluster in a simulation: the core of a master and two workers, and messages that get lost.

Time is not real, and a seed decides the order of everything, so that a run can be repeated. Each
task has its own fibers, which end when it dies. Streams behave as those of `jflow.net.protocol`:
they deliver each message once and in time, or break, which both ends learn, and which ends what the
caller has begun. Calls that may be repeated are at times handled twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jflow.base.cluster import Device, Task
from jflow.base.deadline import FOREVER, Deadline
from jflow.base.drivers import CoreDriver
from jflow.base.drivers.fibers import FiberGroup, FiberJob, FiberTimer
from jflow.errors import AbortedError, OpError, RestartedError, UnavailableError
from jflow.plan import Fetch, Plan, Program, Run, VariableKey, VariableSpec
from jflow.state.core import (
    ClaimedRuns,
    ClusterView,
    Staging,
    StateMoves,
    StateSaves,
    StepEffect,
    TaskCore,
    TaskEffects,
    is_of,
)
from jflow.state.effects import ConflictError
from jflow.state.fencing import Claim
from jflow.state.moves import MovedError, StateId, changes_of, states_of
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.resources import Containers, Transaction
from jflow.task.execution import link
from jflow.task.execution.blocking import BlockingDriver
from jflow.task.execution.classes import writes_of
from jflow.task.execution.interpreter import interpret
from jflow.task.execution.linked import LinkedPlan
from jflow.task.execution.parked import ParkedAttempts
from jflow.task.execution.step_state import StepState
from tests.base.drivers.driven import SimulatedDriver
from tests.variables import set_variable

MASTER, SPARE, A, B = Task("worker", 0), Task("worker", 1), Task("ps", 0), Task("ps", 1)
TASKS = (MASTER, SPARE, A, B)
CPU: jax.Device = jax.devices("cpu")[0]
LIVENESS_S = 15.0
CONFLICT_S = 0.05
REPEATED = frozenset(
    {TaskEffects.decide, StateMoves.end, StateSaves.end, StateSaves.forget, ClaimedRuns.learn}
)
"""What may be done again."""

_JITTED = jax.jit(lambda old: [old + 1], donate_argnums=0)


def _update(old: jax.Array) -> list[jax.Array]:
    # Computed at once, or how long the device takes would decide what comes first.
    found: list[jax.Array] = jax.block_until_ready(_JITTED(old))
    return found


def device_of(task: Task) -> str:
    return str(Device(task, "CPU", 0))


def variable(name: str, task: Task) -> StateId:
    return StateId(device_of(task), "variable", "", name)


class Host(FiberGroup):
    """The fibers of one life of a task."""

    def __init__(self, ready: list[tuple[Host, FiberJob[Any]]]) -> None:
        super().__init__()
        self.is_dead = False
        self._all_ready = ready
        self._fibers: dict[FiberJob[Any], None] = {}  # in their order, which a set has not

    def wake(self, fiber: FiberJob[Any]) -> None:
        if not self.is_dead:
            self._fibers[fiber] = None
            self._all_ready.append((self, fiber))

    def die(self) -> None:
        self.is_dead = True
        for fiber in self._fibers:
            fiber.close()


class World(SimulatedDriver):
    """The tasks, and what carries messages between them.

    Args:
      seed: decides everything.
      p_fault: how probable it is that a message breaks its stream.
    """

    def __init__(self, seed: int, p_fault: float) -> None:
        super().__init__(seed)
        self.p_fault = p_fault
        self._ready: list[tuple[Host, FiberJob[Any]]] = []
        self.client = self.host()
        self.group = self.client
        self.tasks = {task: SimulatedTask(self, task) for task in TASKS}
        self.streams: dict[tuple[Task, Task], Stream] = {}

    def host(self) -> Host:
        return Host(self._ready)

    @contextmanager
    def on(self, host: Host) -> Iterator[None]:
        """What is started in the block runs on a task."""
        former, self.group = self.group, host
        try:
            yield
        finally:
            self.group = former

    def later(self, seconds: float, function: Callable[..., object], *args: Any) -> FiberTimer:
        host = self.group
        assert isinstance(host, Host)

        def call() -> None:
            if not host.is_dead:
                function(*args)

        return super().later(seconds, call)

    def step_any(self) -> bool:
        while self._ready:
            host, fiber = self._ready.pop(self.random.randrange(len(self._ready)))
            if not host.is_dead:
                self.step(fiber)
                return True
        return False

    def delay(self) -> float:
        """How long a message is under way: at times very long."""
        longest = 0.5 if self.random.random() < 0.1 else 0.01
        return self.random.uniform(0.0005, longest)

    def stream(self, caller: Task, target: Task) -> Stream:
        found = self.streams.get((caller, target))
        if found is None or found.is_broken or found.has_ended:
            found = Stream(self, self.tasks[caller].host, self.tasks[target], caller)
            self.streams[caller, target] = found
        return found

    def restart(self, task: Task) -> None:
        """A task that has died begins another life."""
        former = self.tasks[task]
        self.tasks[task] = SimulatedTask(self, task, former.incarnation + 1)

    def kill(self, task: Task) -> None:
        """A task dies: its streams break, and what it was calling goes on alone."""
        self.tasks[task].host.die()
        for ends, stream in [*self.streams.items()]:
            if task in ends:
                stream.broken()


class Stream:
    """What carries the calls of one task to another."""

    def __init__(self, world: World, caller: Host, target: SimulatedTask, name: Task) -> None:
        self.is_broken = False
        self._world, self._caller, self._target = world, caller, target
        self.services = target.services(name)
        self._pending: dict[Any, FiberJob[Any] | None] = {}

    @property
    def has_ended(self) -> bool:
        """Whether one of the two is in another life."""
        return self._caller.is_dead or self._target.host.is_dead

    def broken(self) -> None:
        """Both ends learn that it has broken."""
        if self.is_broken:
            return
        self.is_broken = True
        for reply, handler in self._pending.items():
            if handler is not None and not self._target.host.is_dead:
                handler.cancel()
            reply.set()
        if not self._target.host.is_dead:
            with self._world.on(self._target.host):
                for service in self.services:
                    if not isinstance(service, ClaimedRuns | Steps):
                        service.close()

    async def call(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        world, target, outcome = self._world, self._target, list[Any]()
        is_faulty = world.random.random() < world.p_fault
        loses_request = is_faulty and world.random.random() < 0.5
        service = next(one for one in self.services if is_of(one, method))
        reply = world.event()

        async def handle() -> None:
            await world.sleep(world.delay())
            try:
                result = await method(service, *args, **kwargs)
            except Exception as error:
                result = error
            if _may_repeat(method, args) and world.random.random() < 0.1:
                world.start(_again(world, method, service, args))
            if is_faulty:
                world.later(LIVENESS_S, self.broken)
                return
            await world.sleep(world.delay())
            outcome.append(result)
            reply.set()

        handler: FiberJob[Any] | None = None
        if loses_request:
            world.later(LIVENESS_S, self.broken)
        else:
            with world.on(target.host):
                handler = world.start(handle())
        self._pending[reply] = handler
        try:
            await reply.wait()
        except BaseException:
            if handler is not None and not target.host.is_dead:
                handler.cancel()
            raise
        finally:
            del self._pending[reply]
        if not outcome:
            raise UnavailableError(f"the stream to {target.task} broke", task=str(target.task))
        if isinstance(outcome[0], Exception):
            error = outcome[0]
            if isinstance(error, MovedError) or not isinstance(error, OpError):
                raise error
            raise type(error)(error.message, op=error.op, task=error.task)
        return outcome[0]


def _may_repeat(method: Any, args: Sequence[Any]) -> bool:
    """Whether a call may be done again; not the end of an attempt, which may have begun again."""
    is_abort = method is TaskEffects.decide and not args[2]
    return method in REPEATED and not is_abort


async def _again(world: World, method: Any, service: Any, args: Sequence[Any]) -> None:
    await world.sleep(world.delay())
    with suppress(OpError):
        await method(service, *args)


class Proxy:
    """A task, as another one calls it."""

    is_direct = False

    def __init__(self, world: World, caller: Task, target: Task) -> None:
        self._world, self._caller, self._target = world, caller, target

    async def connect(self, connect_timeout: float, deadline: Deadline = FOREVER) -> Any:
        target = self._world.tasks[self._target]
        if target.host.is_dead:
            await self._world.sleep(connect_timeout)
            raise UnavailableError(f"{self._target} does not answer", task=str(self._target))
        return target

    async def call(self, method: Any, incarnation: int, *args: Any, **kwargs: Any) -> Any:
        target = self._world.tasks[self._target]
        if target.host.is_dead or target.incarnation != incarnation:
            raise RestartedError(f"{self._target} has another life", task=str(self._target))
        if self._caller == self._target:
            service = next(one for one in target.own_services if is_of(one, method))
            return await method(service, *args, **kwargs)
        return await self._world.stream(self._caller, self._target).call(method, *args, **kwargs)


class CoreTask:
    """A task: its state and services, and a master.

    Args:
      driver: runs them.
      task: the task.
      proxies: how it calls the tasks of its cluster.
      incarnation: which life of the task it is.
      n_devices: how many devices it has.
    """

    def __init__(
        self,
        driver: CoreDriver,
        task: Task,
        proxies: Mapping[Task, Any],
        incarnation: int = 1,
        n_devices: int = 1,
    ) -> None:
        self.driver, self.task, self.incarnation = driver, task, incarnation
        self.containers = Containers(task)
        self.device_names = [str(Device(task, "CPU", i)) for i in range(n_devices)]
        self.tasks = tuple(proxies)
        devices = dict.fromkeys(self.device_names, CPU)
        state = TaskCore(task, self.containers, driver, devices, ParkedAttempts(), proxies)
        self.state = state
        self.moves, self.effects = StateMoves(state), TaskEffects(state)
        self.claims = ClaimedRuns(driver)
        roots = AllowedDirectories.anywhere()
        self.saves = StateSaves(state, self.moves, roots, lambda _: True, self.claims.fences)
        self.steps = Steps(self, self.effects, self.saves)
        self.own_services = (self.moves, self.effects, self.claims, self.saves, self.steps)
        gate, fences = self.moves.steps, self.claims.fences
        self.view = ClusterView(lambda: self, proxies, driver, gate, fences, lambda: LIVENESS_S)

    def services(self, caller: Task) -> tuple[Any, ...]:
        """Those of another task."""
        effects, saves = self.effects.of_caller(), self.saves.of_caller(caller)
        return self.moves.of_caller(), effects, self.claims, saves, Steps(self, effects, saves)

    def set(self, name: str, value: float) -> None:
        spec = VariableSpec(VariableKey("", name), "float32", ())
        set_variable(self.containers, Device(self.task, "CPU", 0), spec, jnp.float32(value))

    def value(self, name: str) -> float | None:
        found = self.containers.peek(Device(self.task, "CPU", 0), VariableKey("", name))
        return None if found is None else float(found)


class Direct:
    """A task, as it calls itself."""

    def __init__(self, task: CoreTask) -> None:
        self._task = task

    async def connect(self, connect_timeout: float, deadline: Deadline = FOREVER) -> CoreTask:
        return self._task

    async def call(self, method: Any, incarnation: int, *args: Any, **kwargs: Any) -> Any:
        service = next(one for one in self._task.own_services if is_of(one, method))
        return await method(service, *args, **kwargs)


class SimulatedTask(CoreTask):
    """One life of a task in a simulation."""

    def __init__(self, world: World, task: Task, incarnation: int = 1) -> None:
        proxies = {target: Proxy(world, task, target) for target in TASKS}
        super().__init__(world, task, proxies, incarnation)
        self.host = world.host()


class Steps:
    """Runs plans on a task, as its worker does."""

    _handles = itertools.count()

    def __init__(self, task: CoreTask, effects: TaskEffects, saves: StateSaves) -> None:
        self._task, self._effects, self._saves = task, effects, saves

    async def run(
        self, names: Sequence[str], staging: Staging | None, claim: Claim | None
    ) -> list[Any]:
        """Adds one to variables of the task."""
        task = self._task
        if claim is None:
            return await self._run(names, staging)
        await task.claims.admit(claim)
        with task.claims.running(claim):
            return await self._run(names, staging)

    async def _run(self, names: Sequence[str], staging: Staging | None) -> list[Any]:
        linked, gate = plan_of(names, self._task.task), self._task.moves.plans
        states = states_of([linked.plan])
        try:
            use = gate.directory.add(states)
            await gate.enter(use, object())
        except MovedError as error:
            raise AbortedError(error.message) from None
        handle = next(self._handles)
        self._saves.registered(handle, changes_of([linked.plan]))
        try:
            assert staging is not None
            return await self._effects.run_on_task(
                staging, writes_of([linked]), lambda kept: self.perform(linked, kept)
            )
        finally:
            gate.leave(use)
            self._saves.released(handle)

    async def perform(self, linked: LinkedPlan, kept: StepEffect) -> list[Any]:
        state = StepState(linked, self._task.containers, writing=kept.writing, effect=kept)
        work = [(0, one) for stage in linked.stages for one in stage]
        running: Any = interpret(work, (state,), BlockingDriver(()))
        try:
            for cell, attempt in running:
                waiting = self._task.driver.start(self._task.state.waited((cell, attempt)))
                while not waiting.done():
                    await self._task.driver.sleep(CONFLICT_S)
                    if isinstance(kept, Transaction) and kept.must_yield(attempt):
                        waiting.cancel()
                        raise ConflictError("an older step has it")
                await waiting
            return [np.asarray(state.fetch(fetch.slot)) for fetch in linked.fetches]
        finally:
            running.close()
            state.close()


def plan_of(names: Sequence[str], task: Task) -> LinkedPlan:
    """Adds one to variables, and fetches their values."""
    specs = tuple(VariableSpec(VariableKey("", name), "float32", ()) for name in names)
    runs = [
        Run(Program("update", (), (0,)), (i,), (), (i,), (), after=((i, i),), op=name)
        for i, name in enumerate(names)
    ]
    fetches = [Fetch(i, i) for i in range(len(names))]
    device = Device(task, "CPU", 0)
    plan = Plan(device, 2 * len(names), specs, ((*runs, *fetches),))
    return link(plan, CPU, lambda _: _update, lambda _: None)


class Participant:
    """A task in a step."""

    is_writing, incarnation = True, 1

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy

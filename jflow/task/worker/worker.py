"""`Worker`: registers and runs the plans of one task, and owns its state."""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar, NoReturn

import jax
import numpy as np

from jflow.base.cluster import Device, Task
from jflow.base.deadline.clock import now
from jflow.base.drivers import LoopDriver
from jflow.base.drivers.coroutines import Started
from jflow.base.drivers.loop import all_of
from jflow.base.failpoints import async_failpoint
from jflow.base.failpoints.points import actions as failpoints_on
from jflow.base.values import Array, memory_bytes
from jflow.errors import AbortedError, OpError, RestartedError
from jflow.net.protocol import UNKNOWN_OWNER, Artifacts, Client, Piggybacked, Registered, StepOwner
from jflow.plan import Plan
from jflow.plan.trace.record import Recorder, TaskRecord
from jflow.plan.xla.compilation import Compile, compile_here
from jflow.state.core import (
    ClaimedRuns,
    Staging,
    StateMoves,
    StateSaves,
    StepEffect,
    TaskCore,
    TaskEffects,
    TaskMembers,
)
from jflow.state.fencing import Claim
from jflow.state.journal import JournalPart
from jflow.state.journal import packed as packed_entries
from jflow.state.moves import MovedError, changes_of, sessions_of, used_by
from jflow.state.records.allowed_directories import CHECKPOINTS, AllowedDirectories
from jflow.state.resources import Containers, SingleWrite, Writing
from jflow.state.saves import tensor_functions
from jflow.state.watch import StatusRequest, WatchedTask
from jflow.task.execution.devices import DevicesByName, DevicesOfTask
from jflow.task.execution.functions import HostFunction
from jflow.task.execution.link import NO_FUNCTIONS
from jflow.task.execution.parked import ParkedAttempts
from jflow.task.worker.context import TensorTransport, WorkerContext
from jflow.task.worker.device_pool import DevicePool
from jflow.task.worker.early import EarlyValues
from jflow.task.worker.inline import (
    Inline,
    InlineAccess,
    InlineOperation,
    InlinePrograms,
    inline_plan,
)
from jflow.task.worker.linking import DroppedError, PlanLinker
from jflow.task.worker.plan_run import run_plan
from jflow.task.worker.registered import RegisteredPlans, ends_with
from jflow.task.worker.rendezvous import Rendezvous
from jflow.task.worker.usage import StepUsage
from jflow.task.worker.watching import RunningSteps


class Worker:
    """The worker service of one task, for one caller. Call it on the event loop only.

    Args:
      task: the task.
      devices: this process's devices by name.
      transport: sends values to other tasks.
      threads: for compilation and other work that terminates.
      roots: the directories that readers may read; none if None.
      thread_started: each thread that runs programs calls it first.
      checkpoint_roots: the directories that checkpoints may be in; none if None.
      compiled_by: what compiles programs.

    Attributes:
      long_programs: runs programs that may take long.
      abandoned: the steps that were abandoned while it ran a program of them.
      containers: the state of the task.
      programs: the cache of compiled programs.
      moves: moves state.
      effects: the steps that it applies once.
      saves: saves and restores state.
      claims: the runs under claims.
      functions: host functions that its plans may call in addition to those of every worker.
      can_piggyback: whether values may leave with the replies of plans.
      usage: what the steps that are registered take of it.
      running: the steps that it runs, for its watchers.
      watched: the task as its server shows it to watchers.
      members: the list of members that the task knows.
    """

    watched: WatchedTask
    members: TaskMembers
    functions: Mapping[str, HostFunction] = NO_FUNCTIONS
    can_piggyback: ClassVar[bool] = True

    def __init__(
        self,
        task: Task,
        devices: Mapping[Device, jax.Device],
        transport: TensorTransport,
        threads: ThreadPoolExecutor,
        roots: AllowedDirectories | None = None,
        thread_started: Callable[[], object] | None = None,
        checkpoint_roots: AllowedDirectories | None = None,
        compiled_by: Compile = compile_here,
    ) -> None:
        self._devices = devices = DevicesOfTask(devices)
        self._handles = itertools.count(1)
        self._registered: dict[int, RegisteredPlans] = {}
        self._inline: dict[int, Inline] = {}
        self._of_caller: set[int] = set()
        # How many registered steps use resources of a session that are not shared.
        self._owners: Counter[str] = Counter()
        self.long_programs = DevicePool(devices.values(), f"jflow program {task}", thread_started)
        containers, parked = Containers(task, roots), ParkedAttempts()
        names = DevicesByName(devices)
        state = TaskCore(task, containers, LoopDriver(threads), names, parked, transport)
        self._context = WorkerContext(
            task, containers, Rendezvous(), transport, threads, self.long_programs, parked
        )
        self.abandoned = self._context.abandoned
        self._sender = self._context.senders.connected()
        self._early = EarlyValues(self._context.rendezvous)
        self.containers = self._context.containers
        self._linker = PlanLinker(task, devices, threads, compiled_by)
        self.programs = self._linker.programs
        self.moves = StateMoves(state, lambda one: ends_with(task, one, self._registered.values()))
        self.usage = StepUsage(task, containers.usage)
        self.running = RunningSteps(self._context, self.moves.plans, devices)
        self.claims = ClaimedRuns(state.driver)
        self.claims.fences.add_user(self._used_claims)
        self.effects = TaskEffects(state)
        roots = checkpoint_roots or AllowedDirectories((), CHECKPOINTS)
        self.functions = {**self.functions, **tensor_functions(roots)}
        self.saves = StateSaves(
            state, self.moves, roots, self._owners.__contains__, self.claims.fences
        )

    def open_session(self, caller: Task | None = None) -> Worker:
        """Returns a worker for another caller, which shares all but what each registers."""
        # A shallow copy shares all other state: no attribute is rebound after `__init__`.
        session = copy.copy(self)
        session._of_caller = set()
        session._sender = self._context.senders.connected(caller)
        session.moves = self.moves.of_caller()
        session.saves = self.saves.of_caller(caller)
        session.effects = self.effects.of_caller()
        return session

    async def register(
        self,
        plans: Sequence[Plan],
        artifacts: Artifacts,
        is_restartable: bool = False,
        owner: StepOwner = UNKNOWN_OWNER,
    ) -> Registered:
        """See `WorkerService.register`."""
        if owner.claim is not None:
            await self.claims.admit(owner.claim)
        self._linker.check(plans, artifacts)
        states = used_by(plans)
        await self.moves.plans.released(states)
        missing = self._linker.missing(plans, artifacts)
        if missing:
            return Registered(0, missing)
        if (action := async_failpoint("worker.before_compile")) is not None:
            await action
        master = self._sender.task or self._context.task
        creator = owner.charged(master)
        try:
            with self.usage.charging(creator, plans):
                linked = await self._linker.link(plans, artifacts, self.functions, creator)
                await self.moves.plans.released(states)
        except DroppedError as dropped:
            return Registered(0, (dropped.digest,))
        use = self.moves.plans.directory.add(states)
        handle = next(self._handles)
        self._owners.update(sessions_of(plans))
        self.saves.registered(handle, changes_of(plans))
        self._registered[handle] = registered = RegisteredPlans.of(
            handle, linked, use, is_restartable, owner, master
        )
        if (inline := inline_plan(registered, self._context)) is not None:
            self._inline[handle] = inline
        self._of_caller.add(handle)
        return Registered(handle, n_bytes=sum(one.fetched_bytes for one in linked))

    def release(self, handle: int) -> None:
        """Releases registered plans; with its last plans here, frees the state of their session."""
        self._of_caller.discard(handle)
        registered = self._registered.pop(handle, None)
        self._inline.pop(handle, None)
        if registered is None:
            return
        self.moves.plans.directory.remove(registered.use)
        self.saves.released(handle)
        plans = [linked.plan for linked in registered.plans]
        self.usage.free(registered.creator, plans)
        owners = sessions_of(plans)
        self._owners.subtract(owners)
        for owner in owners:
            if not self._owners[owner]:
                del self._owners[owner]
                self.containers.end_session(owner)

    async def run_plans(
        self,
        step: int,
        handle: int,
        feeds: Sequence[Array],
        client: Client | None = None,
        records: list[TaskRecord] | None = None,
        staging: Staging | None = None,
        piggybacked: Piggybacked | None = None,
    ) -> list[Array]:
        """Runs registered plans, which are this task's part of a step.

        Args:
          step: identifies the step on every task that takes part.
          handle: the registered plans.
          feeds: the fed values of these plans in the order of their indices.
          client: calls functions of the client; None if it is not connected to this task.
          records: if given, the step is traced, and what this task notes is added to them.
          staging: stages their writes, if the step is applied once.
          piggybacked: receives the values for the caller that they send last; None to send these.

        Returns:
          Their fetched values in the order of their indices.

        Raises:
          AbortedError: if the handle is unknown.
          FencedError: if there was a later claim of the name that its client has claimed.
          ConflictError, UnimplementedError: as `WorkerService.run_plans`.
          OpError: if a plan fails.
          asyncio.CancelledError: if it is cancelled; its argument is what it was waiting for, as
            `Waited`, if that is known.
        """
        self.check_devices(handle)
        registered = self._registered.get(handle) or self._missing_plans(handle)
        if not self.can_piggyback or len(registered.plans) != 1:
            piggybacked = None
        if registered.owner.claim is None:
            return await self._run(step, registered, feeds, client, records, staging, piggybacked)
        with self.claims.running(registered.owner.claim):
            return await self._run(step, registered, feeds, client, records, staging, piggybacked)

    def check_devices(self, handle: int) -> None:
        """See `WorkerService.check_devices`."""
        if self.abandoned.stuck and (registered := self._registered.get(handle)) is not None:
            self.abandoned.refuse(registered.plans)

    def begin_plans(
        self,
        step: int,
        handle: int,
        feeds: Sequence[Array],
        staging: Staging | None = None,
        n_steps: int = 1,
    ) -> Started[Sequence[Array]] | None:
        """See `WorkerService.begin_plans`."""
        plan = self._inline.get(handle)
        if plan is None or failpoints_on or self.abandoned.stuck or not plan.is_quick:
            return None  # `run_plans` refuses plans for a device that is stuck
        if isinstance(plan, InlinePrograms):
            return Started(plan.run_inline(step, feeds))
        plan.registered.check_feeds(feeds)
        try:
            if not self.moves.plans.directory.enter(plan.registered.use):
                return None
        except MovedError:
            return None  # `run_plans` finds what that means for the step
        return Started(self._run_inline(plan, step, feeds, staging, n_steps))

    async def _run_inline(
        self,
        plan: InlineAccess | InlineOperation,
        step: int,
        feeds: Sequence[Array],
        staging: Staging | None,
        n_steps: int,
    ) -> list[Array]:
        """Runs an inline plan that has entered the gate, so that its state cannot move."""
        registered = plan.registered
        try:
            if isinstance(plan, InlineOperation):
                return await plan.run_inline(step, feeds)
            if n_steps > 1:
                return await self._run_access(plan, step, feeds, None, n_steps)
            run = partial(self._run_access, plan, step, feeds)
            if staging is None or not registered.writes.n_programs:
                return await run()
            return await self.effects.run_on_task(staging, registered.writes, run)
        finally:
            self.moves.plans.leave(registered.use)

    async def _run_access(
        self,
        plan: InlineAccess,
        step: int,
        feeds: Sequence[Array],
        effect: StepEffect | None = None,
        n_steps: int = 1,
    ) -> list[Array]:
        """Runs a program on variables; inline, or as any other plan if it has to wait."""
        values = await plan.run_inline(step, feeds, effect, n_steps)
        if values is not None:
            return values
        for _ in range(n_steps - 1):
            await self._run_access(plan, step, feeds)
        context, registered = self._context, plan.registered
        fed = dict(zip(registered.feeds, feeds, strict=True))
        context.begin_step(step, registered)
        try:
            return await self._run_plans(registered, step, fed, None, effect)
        except asyncio.CancelledError as error:
            context.tell_wait(step, error)
            raise
        finally:
            context.end_step(step, registered)

    async def _run(
        self,
        step: int,
        registered: RegisteredPlans,
        feeds: Sequence[Array],
        client: Client | None,
        records: list[TaskRecord] | None,
        staging: Staging | None,
        piggybacked: Piggybacked | None,
    ) -> list[Array]:
        context = self._context
        if len(feeds) != len(registered.feeds):
            registered.check_feeds(feeds)
        fed = dict(zip(registered.feeds, feeds, strict=True))
        recorder = None if records is None else Recorder(str(context.task), now)
        if recorder is not None:
            context.recorders[step] = recorder
        if piggybacked is not None:
            context.piggybacked[step] = piggybacked
        context.begin_step(step, registered)
        gate, use = self.moves.plans, registered.use
        has_entered = False
        try:
            try:
                if not gate.directory.enter(use):
                    await gate.enter(use, step)
            except MovedError as error:
                raise self._moved_error(registered, error) from None
            has_entered = True
            if staging is None or not registered.writes.n_programs:
                values = await self._run_plans(registered, step, fed, client)
            elif registered.refusal is not None:
                raise registered.refusal
            else:
                values = await self.effects.run_on_task(
                    staging,
                    registered.writes,
                    lambda effect: self._run_plans(registered, step, fed, client, effect),
                )
        except asyncio.CancelledError as error:
            context.tell_wait(step, error)
            raise
        finally:
            if has_entered:
                gate.leave(use)
            context.end_step(step, registered)
        if records is not None and recorder is not None:
            records.append(recorder.record())
        return values

    async def _run_plans(
        self,
        registered: RegisteredPlans,
        step: int,
        fed: Mapping[int, Array],
        client: Client | None,
        effect: StepEffect | None = None,
    ) -> list[Array]:
        """Runs plans that have entered the gate; returns their fetched values in order."""
        if (action := async_failpoint("worker.before_run")) is not None:
            await action
        parks = registered.use.states if registered.is_restartable else ()
        # A single plan runs in this coroutine, without another pass of the event loop.
        writing = Writing() if registered.writes_often else None
        if effect is not None:
            writing = effect.writing
        context, plans = self._context, registered.plans
        if isinstance(effect, SingleWrite):
            effect.given_up = partial(context.give_up_step, step, registered)
        try:
            if len(plans) == 1:
                fetched = await run_plan(
                    plans[0], step, fed, context, client, parks, writing, effect
                )
            else:
                results = await all_of(
                    run_plan(plan, step, fed, context, client, parks, writing, effect)
                    for plan in plans
                )
                fetched = {index: value for result in results for index, value in result.items()}
        finally:
            if writing is not None and effect is None:
                self.containers.leave(writing)
        if (action := async_failpoint("worker.after_run")) is not None:
            await action
        return [*map(fetched.__getitem__, registered.fetches)]

    def needs_task(self, handle: int) -> bool:
        """See `WorkerSession.needs_task`: a later claim cancels the task of a step."""
        registered = self._registered.get(handle)
        return registered is not None and registered.owner.claim is not None

    def _used_claims(self) -> Iterator[Claim]:
        """Returns the claims of registered plans."""
        return (one.owner.claim for one in self._registered.values() if one.owner.claim is not None)

    def _missing_plans(self, handle: int) -> NoReturn:
        task = str(self._context.task)
        message = f"{task} has no registered plans {handle}; open a new session"
        raise RestartedError(message, task=task)

    def deliver(self, step: int, edge: int, value: Any) -> bool:
        """See `WorkerSession.deliver`."""
        n_bytes = 0 if value is None else memory_bytes(value)
        self._context.deliver(step, edge, value, self._sender, n_bytes)
        self._early.watch()
        return self._context.rendezvous.is_crowded(self._sender)

    async def make_room(self) -> None:
        """See `WorkerSession.make_room`."""
        await self._early.make_room(self._sender)

    async def list_coordinators(self) -> Array:
        """See `WorkerService.list_coordinators`."""
        packed: Array = np.frombuffer(self.watched.coordinators().to_bytes(), np.uint8)
        return packed

    async def inspect(self, request: StatusRequest) -> Array:
        """See `WorkerService.inspect`."""
        status = self.watched.inspect(request).to_bytes(request.version)
        packed: Array = np.frombuffer(status, np.uint8)
        return packed

    async def read_journal(self, position: int) -> JournalPart:
        """See `WorkerService.read_journal`."""
        with self.containers.lock:
            found = self.containers.journal.read(position)
        return packed_entries(*found)

    async def stop(self) -> None:
        """See `WorkerService.stop`."""
        self.watched.stop()

    async def reset(self, containers: Sequence[str]) -> None:
        """Frees containers of this task."""
        self.moves.clear(containers)
        self.containers.clear(containers)

    def close(self) -> None:
        """Releases everything that this caller registered, and ends its holds."""
        self._context.sender_lost(self._sender)
        self.moves.close()
        self.saves.close()
        self.effects.close()
        for handle in tuple(self._of_caller):
            self.release(handle)

    def _moved_error(self, registered: RegisteredPlans, error: MovedError) -> OpError:
        """Returns the error for plans whose state has moved.

        A master starts no step whose state has moved. One that comes here nevertheless, because its
        master had lost the hold, may have begun on other tasks.
        """
        # What may be run again has its one effect on a queue. If that is here, it is not done.
        if registered.is_restartable and any(one.plan.resources for one in registered.plans):
            return error
        return AbortedError(
            f"the state moved while the step was started, which may have done a part of its "
            f"work: {error.message}",
            task=str(self._context.task),
        )

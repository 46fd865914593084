"""`ClientSession`: a client's session on the master, which registers and runs its steps."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from jflow.base.cluster import Task
from jflow.base.deadline import FOREVER, Deadline
from jflow.base.deadline.clock import now
from jflow.base.drivers import Job
from jflow.base.drivers.coroutines import Started, Waited
from jflow.base.failpoints import async_failpoint
from jflow.base.values import Array
from jflow.errors import AbortedError, InvalidArgumentError, OpError, UnavailableError
from jflow.net.protocol import (
    Artifacts,
    Client,
    DeviceRecord,
    Registered,
    ReplySize,
    Rights,
    StepOwner,
    UnregisteredError,
)
from jflow.plan import Plan, verify_step
from jflow.plan.trace.record import TaskRecord
from jflow.state.core import ClusterMembers, EffectRunner, SessionClaim, Staging
from jflow.state.effects import Effect
from jflow.state.fencing import Claim
from jflow.state.journal import N_ATTEMPTS, recorded_ids
from jflow.state.moves import changes_of, is_restartable, used_by
from jflow.state.watch import CoordinatorStatus, SessionStatus, SessionWaits
from jflow.task.execution.repeated import RepeatedRun
from jflow.task.master.inline import begin_inline, run_each
from jflow.task.master.pending import N_STEP_IDS, connection_waits, find_waits
from jflow.task.master.registering import Registrar
from jflow.task.master.rights import GuardedState, SessionRights
from jflow.task.master.sampling import StepSampler
from jflow.task.master.step_runner import (
    RegisteredStep,
    StepRunner,
    TaskPlans,
    check_values,
    is_blocking,
    reply_of,
    single_write_staging,
)
from jflow.task.master.view import ServerView
from jflow.task.master.watching import ClusterWatch

_MAX_RENEWALS = 3
"""How often one run of a step registers its plans on a task again."""


class ClientSession:
    """A client's session on the master. Every method must be called on the event loop.

    Args:
      servers: the master's view of the cluster.
      sampler: traces steps for observers.
      reset: frees containers on all tasks on behalf of this session.
      began: called when it has registered its first step.
      closed: called when the session closes.
      number: counts the sessions of the master.
      rights: those of its client.

    Attributes:
      watch, state, limit: see `MasterSession`.
      number: as given.
      rights: those that its client has now.
      coordinator: the status of its coordinator, as published by its client; None if it has none.
      members: see `MasterSession`; set before its client calls it.
    """

    members: ClusterMembers

    def __init__(
        self,
        servers: ServerView,
        sampler: StepSampler,
        reset: Callable[
            [ClientSession, Sequence[str], float, Deadline, Sequence[Task]], Awaitable[None]
        ],
        began: Callable[[ClientSession], None],
        closed: Callable[[ClientSession], None],
        number: int,
        rights: Rights,
    ) -> None:
        self.number = number
        self.coordinator: CoordinatorStatus | None = None
        self._servers = servers
        self._sampler = sampler
        self._reset = reset
        self._on_begin = began
        self._on_close = closed
        self._handles = itertools.count(1)
        # Step ids must be unique in the cluster: a random start keeps masters apart.
        first = secrets.randbits(63)
        self._step_ids = itertools.count(first)
        self._own_ids = [range(first, first + N_STEP_IDS)]
        self._steps: dict[int, RegisteredStep] = {}
        self._claim = SessionClaim(servers)
        self._registrar = Registrar(servers, self._owner)
        self._running: set[Job[Any]] = set()
        self._connecting: dict[Task, float] = {}
        self._end: AbortedError | None = None
        self.watch = ClusterWatch(servers)
        self.rights = SessionRights(rights, self._steps, self.end)
        self.limit = self.rights.limit
        shared = (self._claim, self._running, self._check_open, self._registrar.patience)
        self.state = GuardedState(self.rights, servers, self, *shared)

    @property
    def only_watches(self) -> bool:
        """Whether its client watches the cluster and has registered no step."""
        return self.watch.is_used and not self._steps

    @property
    def used_claim(self) -> Claim | None:
        """The claim under which it works; None if it has claimed nothing."""
        return self._claim.claim

    def _owner(self) -> StepOwner:
        return StepOwner(self._claim.claim, self.number, self.rights.user)

    def status(self, age_s: float) -> SessionStatus:
        """Returns its status for watchers, given its age in seconds."""
        claim = self._claim.claim
        claimed = "" if claim is None else f"{claim.name} {claim.epoch}"
        restarted = tuple(map(str, self._registrar.restarted()))
        counts = len(self._steps), len(self._running)
        return SessionStatus(self.number, age_s, *counts, claimed, restarted, self.rights.user)

    # Calls of the client ----------------------------------------------------------------------

    async def list_devices(
        self,
        tasks: Sequence[Task],
        connect_timeout: float,
        only_up: bool,
        deadline: Deadline = FOREVER,
    ) -> Sequence[DeviceRecord]:
        """See `MasterSession.list_devices`."""

        async def devices(task: Task) -> Sequence[DeviceRecord]:
            since = self._connecting.setdefault(task, now())
            try:
                proxy = self._servers.tasks[task]
                return (await proxy.connect(connect_timeout, deadline)).devices
            except UnavailableError:
                if only_up:
                    return ()
                raise
            finally:
                if self._connecting.get(task) == since:
                    del self._connecting[task]

        groups = await asyncio.gather(*(devices(task) for task in tasks))
        return [device for group in groups for device in group]

    async def register(
        self,
        plans: Sequence[Plan],
        n_fetches: int,
        artifacts: Artifacts,
        connect_timeout: float,
        deadline: Deadline = FOREVER,
        restarted: Sequence[Task] = (),
    ) -> Registered:
        """See `MasterSession.register`."""
        self._check_open()
        self._registrar.go_on_with(restarted)
        by_task: dict[Task, list[Plan]] = {}
        for plan in plans:
            by_task.setdefault(plan.device.task, []).append(plan)
        verify_step(plans, n_fetches)
        self.rights.check_step(plans)
        states, may_restart = used_by(plans), is_restartable(plans)
        self._servers.gate.directory.check(states)

        entries, missing = await self._registrar.register(
            by_task, artifacts, may_restart, connect_timeout, deadline
        )
        if missing:
            return Registered(0, missing)
        if (action := async_failpoint("master.after_register")) is not None:
            await action
        try:
            self.rights.check_step(plans)  # the users may have changed meanwhile
            use = self._servers.gate.directory.add(states, changes_of(plans), self)
        except OpError:
            await self._registrar.release(entries.values())
            raise
        handle = next(self._handles)
        # Remote tasks first, so that their calls overlap with the work on this task.
        ordered = dict(sorted(entries.items(), key=lambda item: item[1].proxy.is_direct))
        reply = None if is_blocking(plans) else reply_of(entries.values())
        self._steps[handle] = RegisteredStep(ordered, n_fetches, use, reply)
        if handle == 1:
            self._on_begin(self)
        return Registered(handle)

    async def run_step(
        self,
        handle: int,
        deadline: Deadline,
        feeds: Sequence[Array],
        client: Client | None = None,
        records: list[TaskRecord] | None = None,
        effect: Effect | None = None,
        step_id: int = 0,
    ) -> Sequence[Array]:
        """See `MasterSession.run_step`."""
        self._check_open()
        step, ids = self._find_step(handle), self._ids_from(step_id)
        effect = self.rights.own_effect(effect)
        within = partial(self._running_within, step, deadline)
        started = Started(self._run_admitted(step, feeds, ids, client, records, effect), within)
        return started.result if started.is_done else await started.rest()

    async def run_steps(
        self,
        handle: int,
        n_steps: int,
        is_stacked: bool,
        feeds: Sequence[Array],
        deadline: Deadline = FOREVER,
    ) -> tuple[int, Sequence[Array]]:
        """See `MasterSession.run_steps`."""
        self._check_open()
        step = self._find_step(handle)
        runs = RepeatedRun(n_steps, is_stacked, step.plans)

        def begin(n_now: int) -> Started[Sequence[Array]] | None:
            if self._sampler.is_open:
                return None
            return begin_inline(self._servers.gate, step, self._step_ids, feeds, None, n_now)

        def run() -> Awaitable[Sequence[Array]]:
            return self._run_admitted(step, feeds, self._step_ids, None, None, None)

        try:
            results = await self._running_within(step, deadline, run_each(runs, begin, run))
        except OpError as error:
            runs.explain(error)
            raise
        return runs.n_done, results

    def begin_step(
        self,
        handle: int,
        deadline: Deadline,
        feeds: Sequence[Array],
        effect: Effect | None = None,
        records: list[TaskRecord] | None = None,
        step_id: int = 0,
    ) -> Started[Sequence[Array]] | None:
        """See `MasterSession.begin_step`."""
        self._check_open()
        step, ids = self._find_step(handle), self._ids_from(step_id)
        effect = self.rights.own_effect(effect)
        within = partial(self._running_within, step, deadline)
        if records is None and not self._sampler.is_open:
            started = begin_inline(self._servers.gate, step, ids, feeds, effect)
            if started is not None:
                started.within = within
                return started
        needs_task = self._claim.claim is not None or not self._registrar.are_current(step)
        if needs_task and asyncio.current_task() is None:
            return None
        return Started(self._run_admitted(step, feeds, ids, None, records, effect), within)

    def _ids_from(self, step_id: int) -> Iterator[int]:
        """Returns the numbers of the attempts of a step, given the first one; 0 for any."""
        if not step_id:
            return self._step_ids
        self.rights.check_recording()
        if step_id not in self._own_ids[-1] or step_id % N_ATTEMPTS:
            self._own_ids.append(recorded_ids(step_id))
        return itertools.cycle(range(step_id, step_id + N_ATTEMPTS))

    def _find_step(self, handle: int) -> RegisteredStep:
        step = self._steps.get(handle)
        if step is None:
            raise InvalidArgumentError(f"step {handle} is not registered in this session")
        return step

    async def _running_within(
        self, step: RegisteredStep, deadline: Deadline, rest: Awaitable[Sequence[Array]]
    ) -> Sequence[Array]:
        """Awaits the rest of a step, which the deadline or the session may cancel."""
        running = asyncio.current_task()
        assert running is not None
        self._running.add(running)
        try:
            if deadline.timeout is None:
                return await rest
            limit = asyncio.timeout(deadline.remaining())
            async with limit:
                return await rest
        except asyncio.CancelledError:
            self._claim.check()  # a later claim has ended the step
            raise
        except TimeoutError as error:
            if deadline.timeout is None or not limit.expired():
                raise
            tasks = ", ".join(map(str, step.entries))
            doing, waited = f"running the step on {tasks}", Waited.of(error.__context__)
            only = None if step.only is None else str(step.only.task)
            raise deadline.error(doing, only, waited.reason, waited.op) from None
        finally:
            self._running.discard(running)

    async def publish_coordinator(self, packed: bytes, deadline: Deadline) -> None:
        """See `MasterSession.publish_coordinator`."""
        self.coordinator = CoordinatorStatus.from_bytes(packed) if packed else None

    async def sample_steps(self, n_steps: int, seconds: float, deadline: Deadline) -> Array:
        """See `MasterSession.sample_steps`."""
        self.watch.is_used = True
        samples = await self._sampler.sample(n_steps, seconds)
        packed: Array = np.frombuffer(samples.to_bytes(), np.uint8)
        return packed

    async def find_waits(self) -> SessionWaits:
        """See `MasterSession.find_waits`."""
        answered = await find_waits(self._servers, self._steps, self._own_ids)
        connecting = connection_waits(self._servers, self._connecting)
        return SessionWaits((*connecting, *answered.found))

    def watch_tasks(self, handle: int) -> Awaitable[None] | None:
        """See `MasterSession.watch_tasks`."""
        step = self._steps.get(handle)
        if step is None or all(entry.proxy.is_direct for entry in step.entries.values()):
            return None
        return self._registrar.keep(step)

    def reply_size(self, handle: int) -> ReplySize | None:
        """See `MasterSession.reply_size`."""
        step = self._steps.get(handle)
        return None if step is None else step.reply

    def release(self, handle: int) -> None:
        """See `MasterSession.release`."""
        step = self._steps.pop(handle, None)
        if step is not None:
            step.is_released = True
            self._servers.gate.directory.remove(step.use)
            self._servers.driver.start(self._registrar.release(step.entries.values()))

    async def reset(
        self,
        containers: Sequence[str],
        connect_timeout: float,
        deadline: Deadline = FOREVER,
        tasks: Sequence[Task] = (),
    ) -> None:
        """See `MasterSession.reset`."""
        await self._reset(self, containers, connect_timeout, deadline, tasks)

    def close(self) -> None:
        """See `MasterSession.close`."""
        self._on_close(self)
        entries = [entry for step in self._steps.values() for entry in step.entries.values()]
        for step in self._steps.values():
            step.is_released = True
            self._servers.gate.directory.remove(step.use)
        self._steps.clear()
        self.state.close()
        # In the background, because the streams of peers may be slow.
        self._servers.driver.start(self._registrar.release(entries))

    def end(self, error: AbortedError) -> None:
        """Ends the session: cancels running calls; later calls fail with `error`."""
        self._end = error
        for call in self._running:
            call.cancel()

    # Running plans ----------------------------------------------------------------------------

    async def _run_admitted(
        self,
        step: RegisteredStep,
        feeds: Sequence[Array],
        ids: Iterator[int],
        client: Client | None,
        records: list[TaskRecord] | None,
        effect: Effect | None,
    ) -> Sequence[Array]:
        """Runs a step once the state that it uses is not held. Raises MovedError if it moved.

        It is traced for the observers that wait for a step.
        """
        gate, use, is_sampled = self._servers.gate, step.use, self._sampler.is_open
        if is_sampled and records is None:
            records = []
        if not gate.directory.enter(use):
            await gate.enter(use, object())
        try:
            if not self._registrar.are_current(step):
                await self._registrar.renew(step)
            staging = None if effect is None else single_write_staging(step, effect)
            if effect is None or staging is not None:
                values = await self._run_all(step, feeds, ids, client, records, staging)
            else:
                values = await EffectRunner(self._servers, step.entries, effect).run_attempt(
                    lambda staging: self._run_all(step, feeds, ids, client, records, staging)
                )
        finally:
            gate.leave(use)
        if is_sampled and records is not None:
            self._sampler.add(step.plans, records)
        return values

    async def _run_all(
        self,
        step: RegisteredStep,
        feeds: Sequence[Array],
        ids: Iterator[int],
        client: Client | None,
        records: list[TaskRecord] | None,
        staging: Staging | None = None,
    ) -> Sequence[Array]:
        step_id = next(ids)
        # An attempt that meets an older step is run again, and only the last one has happened.
        noted = None if records is None else list[TaskRecord]()
        values: Sequence[Array]
        if (entry := step.only) is not None:
            values = await self._run_on_task(step, entry, step_id, feeds, client, noted, staging)
        else:
            by_index = await StepRunner(
                step.entries,
                lambda entry: self._run_on_task(
                    step, entry, step_id, feeds, client, noted, staging
                ),
            ).run_tasks()
            values = [by_index[index] for index in range(step.n_fetches)]
        if (action := async_failpoint("master.after_run")) is not None:
            await action
        if records is not None and noted is not None:
            records += noted
        return values

    async def _run_on_task(
        self,
        step: RegisteredStep,
        entry: TaskPlans,
        step_id: int,
        feeds: Sequence[Array],
        client: Client | None,
        records: list[TaskRecord] | None,
        staging: Staging | None,
    ) -> Sequence[Array]:
        """Runs one task's plans; returns their fetched values in the order of their indices."""
        inputs = entry.feeds_of(feeds)
        for _ in range(_MAX_RENEWALS):
            try:
                values = await entry.proxy.run_plans(
                    entry.incarnation,
                    step_id,
                    entry.handle,
                    inputs,
                    client,
                    records,
                    staging,
                    entry.connection,
                )
            except UnregisteredError:  # nothing was sent
                entry = await self._registrar.renewed(step, entry)
            else:
                return check_values(values, entry)
        raise UnavailableError(
            f"the connection to {entry.task} ends again and again", task=str(entry.task)
        )

    def _check_open(self) -> None:
        if self._end is not None:
            raise AbortedError(self._end.message)
        if self._claim.claim is not None:
            self._claim.check()

"""`ClientSession`: a client's session on the master, which registers and runs its steps."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from typing import Any

from jflow.cluster import Task
from jflow.deadline import FOREVER, Deadline
from jflow.effects import Effect
from jflow.errors import (
    AbortedError,
    InternalError,
    InvalidArgumentError,
    UnavailableError,
)
from jflow.failpoints import async_failpoint
from jflow.master.claiming import SessionClaim
from jflow.master.effects import EffectRunner
from jflow.master.moving import StateMover
from jflow.master.saving import CheckpointSaver
from jflow.master.step_runner import RegisteredStep, StepRunner, TaskPlans
from jflow.master.view import ClusterView
from jflow.moves import MovedError, StateId, changes_of, is_restartable, states_of
from jflow.plan import Plan, feed_indices, fetch_indices, verify_step
from jflow.protocol import (
    RECONNECT_TIMEOUT_S,
    Array,
    Artifacts,
    Client,
    DeviceRecord,
    Registered,
    Staging,
    Waited,
)
from jflow.saves import StateItems
from jflow.trace.record import TaskRecord


class ClientSession:
    """The server's end of a session. Every method must be called on the event loop.

    Args:
      servers: the master's view of the cluster.
      reset: frees containers on all tasks on behalf of this session.
      closed: called when the session closes.
    """

    def __init__(
        self,
        servers: ClusterView,
        reset: Callable[[ClientSession, Sequence[str], float, Deadline], Awaitable[None]],
        closed: Callable[[ClientSession], None],
    ) -> None:
        self._servers = servers
        self._own = servers.info().task
        self._reset = reset
        self._closed = closed
        self._handles = itertools.count(1)
        # Step ids must be unique in the cluster: a random start keeps masters apart.
        self._step_ids = itertools.count(secrets.randbits(63))
        self._steps: dict[int, RegisteredStep] = {}
        self._incarnations: dict[Task, int] = {}
        self._restores: list[CheckpointSaver] = []
        self._claim = SessionClaim(servers)
        self._running: set[asyncio.Task[Any]] = set()
        self._end: AbortedError | None = None

    # Calls of the client ----------------------------------------------------------------------

    async def list_devices(
        self,
        tasks: Sequence[Task],
        connect_timeout: float,
        only_up: bool,
        deadline: Deadline = FOREVER,
    ) -> Sequence[DeviceRecord]:
        """See `MasterSession.list_devices`."""
        own = self._servers.info()

        async def devices(task: Task) -> Sequence[DeviceRecord]:
            if task == own.task:
                return own.devices
            try:
                return (await self._servers.peers[task].connect(connect_timeout, deadline)).devices
            except UnavailableError:
                if only_up:
                    return ()
                raise

        found = await asyncio.gather(*(devices(task) for task in tasks))
        return [device for group in found for device in group]

    async def register(
        self,
        plans: Sequence[Plan],
        n_fetches: int,
        artifacts: Artifacts,
        connect_timeout: float,
        deadline: Deadline = FOREVER,
    ) -> Registered:
        """See `MasterSession.register`."""
        self._check_open()
        by_task: dict[Task, list[Plan]] = {}
        for plan in plans:
            by_task.setdefault(plan.device.task, []).append(plan)
        verify_step(plans, n_fetches)
        states, may_restart = states_of(plans), is_restartable(plans)
        self._servers.gate.directory.check(states)

        async def register(task: Task, group: Sequence[Plan]) -> Registered:
            needed = frozenset().union(*(plan.artifacts for plan in group))
            own = {digest: sent for digest, sent in artifacts.items() if digest in needed}
            return await self._register_plans(
                task, group, own, may_restart, connect_timeout, deadline
            )

        results = await self._register_everywhere(by_task, register)
        missing = dict.fromkeys(digest for result in results for digest in result.missing)
        entries = {
            task: self._entry(task, group, result.handle)
            for (task, group), result in zip(by_task.items(), results, strict=True)
        }
        if missing:
            await self._release(entry for entry in entries.values() if entry.handle)
            return Registered(0, tuple(missing))
        if (action := async_failpoint("master.after_register")) is not None:
            await action
        try:
            use = self._servers.gate.directory.add(states, changes_of(plans), self)
        except MovedError:
            await self._release(entries.values())
            raise
        handle = next(self._handles)
        # Remote tasks first, so that their calls overlap with the work on this task.
        ordered = dict(sorted(entries.items(), key=lambda item: item[0] == self._own))
        self._steps[handle] = RegisteredStep(ordered, n_fetches, use)
        return Registered(handle)

    async def run(
        self,
        handle: int,
        deadline: Deadline,
        feeds: Sequence[Array],
        client: Client | None = None,
        records: list[TaskRecord] | None = None,
        effect: Effect | None = None,
    ) -> Sequence[Array]:
        """See `MasterSession.run`."""
        self._check_open()
        step = self._steps.get(handle)
        if step is None:
            raise InvalidArgumentError(f"step {handle} is not registered in this session")
        running = asyncio.current_task()
        assert running is not None
        self._running.add(running)
        try:
            if deadline.timeout is None:
                return await self._run_admitted(step, feeds, client, records, effect)
            limit = asyncio.timeout(deadline.remaining())
            async with limit:
                return await self._run_admitted(step, feeds, client, records, effect)
        except asyncio.CancelledError:
            self._claim.check()  # a later claim has ended the step
            raise
        except TimeoutError as error:
            if deadline.timeout is None or not limit.expired():
                raise
            tasks = ", ".join(map(str, step.entries))
            doing, waited = f"running the step on {tasks}", Waited.of(error.__cause__)
            only = _only(step.entries)
            raise deadline.error(doing, only, waited.reason, waited.op) from None
        finally:
            self._running.discard(running)

    def release(self, handle: int) -> None:
        """See `MasterSession.release`."""
        step = self._steps.pop(handle, None)
        if step is not None:
            self._servers.gate.directory.remove(step.use)
            self._servers.background.start(self._release(step.entries.values()))

    async def claim(
        self, name: str, epoch: int, connect_timeout: float, deadline: Deadline = FOREVER
    ) -> int:
        """See `MasterSession.claim`."""
        self._check_open()
        return await self._claim.make(name, epoch, connect_timeout, deadline)

    async def reset(
        self, containers: Sequence[str], connect_timeout: float, deadline: Deadline = FOREVER
    ) -> None:
        """See `MasterSession.reset`."""
        await self._reset(self, containers, connect_timeout, deadline)

    async def move_state(
        self,
        states: Sequence[StateId],
        target: str,
        hold_s: float,
        connect_timeout: float,
        deadline: Deadline = FOREVER,
    ) -> None:
        """See `MasterSession.move_state`."""
        self._check_open()
        async with deadline.bounding(f"moving state to {target}", str(self._own)):
            mover = StateMover(self._servers, states, target, hold_s, connect_timeout)
            await mover.run()

    async def save(
        self,
        prefix: str,
        items: bytes,
        is_consistent: bool,
        about: Mapping[str, str],
        connect_timeout: float,
        deadline: Deadline = FOREVER,
    ) -> bytes:
        """See `MasterSession.save`."""
        async with self._saving(f"saving {prefix!r}", deadline):
            saver = self._saver(prefix, items, connect_timeout, deadline)
            return (await saver.save(is_consistent, about)).to_bytes()

    async def restore(
        self, prefix: str, items: bytes, connect_timeout: float, deadline: Deadline = FOREVER
    ) -> bytes:
        """See `MasterSession.restore`."""
        async with self._saving(f"restoring {prefix!r}", deadline):
            saver = self._saver(prefix, items, connect_timeout, deadline)
            report = await saver.restore()
            if saver.is_private:
                self._restores.append(saver)
            return report.to_bytes()

    def _saver(
        self, prefix: str, items: bytes, connect_timeout: float, deadline: Deadline
    ) -> CheckpointSaver:
        wanted = StateItems.from_bytes(items)
        return CheckpointSaver(
            self._servers,
            self,
            prefix,
            wanted,
            lambda task: self._patience(task, connect_timeout),
            deadline,
            self._claim,
        )

    @asynccontextmanager
    async def _saving(self, doing: str, deadline: Deadline) -> AsyncIterator[None]:
        """A block that ends with the deadline or the session."""
        self._check_open()
        running = asyncio.current_task()
        assert running is not None
        self._running.add(running)
        try:
            async with deadline.bounding(doing, str(self._own)):
                yield
        finally:
            self._running.discard(running)

    def close(self) -> None:
        """See `MasterSession.close`."""
        self._closed(self)
        entries = [entry for step in self._steps.values() for entry in step.entries.values()]
        for step in self._steps.values():
            self._servers.gate.directory.remove(step.use)
        self._steps.clear()
        for restore in self._restores:
            self._servers.background.start(restore.forget())
        # In the background, because the streams of peers may be slow.
        self._servers.background.start(self._release(entries))

    def end(self, error: AbortedError) -> None:
        """Ends the session from the server: cancels running calls; later ones fail with `error`."""
        self._end = error
        for call in self._running:
            call.cancel()

    # Registering and running plans ------------------------------------------------------------

    async def _register_everywhere(
        self,
        by_task: Mapping[Task, Sequence[Plan]],
        register: Callable[[Task, Sequence[Plan]], Coroutine[Any, Any, Registered]],
    ) -> list[Registered]:
        """Registers plans on every task; if one fails, releases those of all others."""
        calls = {
            task: asyncio.ensure_future(register(task, group)) for task, group in by_task.items()
        }
        try:
            return await asyncio.gather(*calls.values())
        except BaseException:
            for call in calls.values():
                call.cancel()
            ended = await asyncio.gather(*calls.values(), return_exceptions=True)
            kept = {t: r for t, r in zip(calls, ended, strict=True) if isinstance(r, Registered)}
            entries = [self._entry(t, by_task[t], r.handle) for t, r in kept.items()]
            self._servers.background.start(self._release(entries))
            raise

    def _entry(self, task: Task, plans: Sequence[Plan], handle: int) -> TaskPlans:
        return TaskPlans(
            task,
            self._incarnations[task],
            handle,
            feed_indices(plans),
            fetch_indices(plans),
            any(state.is_variable for change in changes_of(plans) for state in change),
        )

    async def _register_plans(
        self,
        task: Task,
        plans: Sequence[Plan],
        artifacts: Artifacts,
        may_restart: bool,
        connect_timeout: float,
        deadline: Deadline,
    ) -> Registered:
        doing = f"registering the step on {task}"
        if task == self._own:
            self._incarnations[task] = self._servers.info().incarnation
            async with deadline.bounding(doing, str(task)):
                return await self._servers.worker.register(
                    plans, artifacts, may_restart, self._claim.claim
                )
        peer = self._servers.peers[task]
        info = await peer.connect(self._patience(task, connect_timeout), deadline)
        # A session depends on the state of the first incarnation of each task that it reached;
        # a call is refused by any later one.
        incarnation = self._incarnations.setdefault(task, info.incarnation)
        async with deadline.bounding(doing, str(task)):
            return await peer.register(
                incarnation, plans, artifacts, may_restart, self._claim.claim
            )

    def _patience(self, task: Task, connect_timeout: float) -> float:
        """How long to wait for a task that does not answer, in seconds.

        One that this session has reached before is not about to start for the first time, so a
        short time is enough to find that it is lost.
        """
        is_known = task in self._incarnations
        return min(connect_timeout, RECONNECT_TIMEOUT_S) if is_known else connect_timeout

    async def _run_admitted(
        self,
        step: RegisteredStep,
        feeds: Sequence[Array],
        client: Client | None,
        records: list[TaskRecord] | None,
        effect: Effect | None,
    ) -> Sequence[Array]:
        """Runs a step once nothing holds the state that it uses. Raises MovedError if it moved."""
        gate, use = self._servers.gate, step.use
        if not gate.directory.enter(use):
            await gate.enter(use)
        try:
            if effect is None:
                return await self._run_all(step, feeds, client, records)
            return await EffectRunner(self._servers, step.entries, effect).run(
                lambda staging: self._run_all(step, feeds, client, records, staging)
            )
        finally:
            gate.leave(use)

    async def _run_all(
        self,
        step: RegisteredStep,
        feeds: Sequence[Array],
        client: Client | None,
        records: list[TaskRecord] | None,
        staging: Staging | None = None,
    ) -> Sequence[Array]:
        step_id = next(self._step_ids)
        values: Sequence[Array]
        if len(step.entries) == 1:
            (entry,) = step.entries.values()
            values = await self._run_on_task(entry, step_id, feeds, client, records, staging)
        else:
            by_index = await StepRunner(
                step.entries,
                lambda entry: self._run_on_task(entry, step_id, feeds, client, records, staging),
            ).run()
            values = [by_index[index] for index in range(step.n_fetches)]
        if (action := async_failpoint("master.after_run")) is not None:
            await action
        return values

    async def _run_on_task(
        self,
        entry: TaskPlans,
        step_id: int,
        feeds: Sequence[Array],
        client: Client | None,
        records: list[TaskRecord] | None,
        staging: Staging | None,
    ) -> Sequence[Array]:
        """Runs one task's plans; returns their fetched values in the order of their indices."""
        if entry.feeds and entry.feeds[-1] >= len(feeds):
            raise InvalidArgumentError(
                f"the step requires {entry.feeds[-1] + 1} fed values, got {len(feeds)}"
            )
        given = [feeds[index] for index in entry.feeds]
        if entry.task == self._own:
            values = await self._servers.worker.run(
                step_id, entry.handle, given, client, records, staging
            )
        else:
            peer = self._servers.peers[entry.task]
            values = await peer.run(
                entry.incarnation, step_id, entry.handle, given, records, staging
            )
        if len(values) != len(entry.fetches):
            raise InternalError(
                f"expected {len(entry.fetches)} values from {entry.task}, got {len(values)}",
                task=str(entry.task),
            )
        return values

    async def _release(self, entries: Iterable[TaskPlans]) -> None:
        for entry in entries:
            if entry.task == self._own:
                self._servers.worker.release(entry.handle)
                continue
            with suppress(UnavailableError):  # its plans are gone with it
                await self._servers.peers[entry.task].release(entry.incarnation, entry.handle)

    def _check_open(self) -> None:
        if self._end is not None:
            raise AbortedError(self._end.message)
        self._claim.check()


def _only(tasks: Iterable[Task]) -> str | None:
    """The name of the only task; None if there are several."""
    names = list(map(str, tasks))
    return names[0] if len(names) == 1 else None

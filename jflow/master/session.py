"""A client's session on the master: registered steps, and the running of them."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from jflow.cluster import Task
from jflow.deadline import FOREVER, Deadline
from jflow.errors import (
    AbortedError,
    CancelledError,
    InternalError,
    InvalidArgumentError,
    OpError,
    UnavailableError,
)
from jflow.master.step import Action, Fail, StartParts, Step, StopParts
from jflow.plan import Plan, feed_indices, fetch_indices
from jflow.wire import (
    REDIAL_TIMEOUT_S,
    Array,
    Artifacts,
    Background,
    Client,
    DeviceRecord,
    Peers,
    Registered,
    Welcome,
    WorkerService,
    begin,
)


@dataclass(frozen=True)
class Fleet:
    """The servers of a cluster as one of them sees them.

    Attributes:
      welcome: how this one introduces itself, as it is now.
      worker: its own worker.
      peers: the others.
      background: where work goes on for sessions that have ended.
    """

    welcome: Callable[[], Welcome]
    worker: WorkerService
    peers: Peers
    background: Background = field(default_factory=Background)


@dataclass(frozen=True)
class _Share:
    """One task's part in a registered step: its handle there, in which life, and its values."""

    task: Task
    incarnation: int
    handle: int
    feeds: tuple[int, ...]
    fetches: tuple[int, ...]


@dataclass(frozen=True)
class _Registered:
    shares: dict[Task, _Share]
    n_fetches: int


class ClientSession:
    """The server's end of a session. Every method must be called on the event loop.

    Args:
      fleet: the servers.
      reset: frees containers everywhere on behalf of this session.
      closed: is told when the session closes.
    """

    def __init__(
        self,
        fleet: Fleet,
        reset: Callable[[ClientSession, Sequence[str], float, Deadline], Awaitable[None]],
        closed: Callable[[ClientSession], None],
    ) -> None:
        self._fleet = fleet
        self._own = fleet.welcome().task
        self._reset = reset
        self._closed = closed
        self._handles = itertools.count(1)
        # No other master counts through the same numbers.
        self._step_ids = itertools.count(secrets.randbits(63))
        self._steps: dict[int, _Registered] = {}
        self._incarnations: dict[Task, int] = {}
        self._running: set[asyncio.Task[list[Array]]] = set()
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
        own = self._fleet.welcome()

        async def devices(task: Task) -> Sequence[DeviceRecord]:
            if task == own.task:
                return own.devices
            try:
                return (await self._fleet.peers[task].connect(connect_timeout, deadline)).devices
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
        fetches = [index for group in by_task.values() for index in fetch_indices(group)]
        if len(fetches) != n_fetches or sorted(fetches) != list(range(len(fetches))):
            raise InvalidArgumentError(
                f"a step of {n_fetches} fetched values came with plans that give {fetches[:100]}"
            )

        async def register(task: Task, group: Sequence[Plan]) -> Registered:
            needed = frozenset().union(*(plan.artifacts for plan in group))
            own = {digest: sent for digest, sent in artifacts.items() if digest in needed}
            return await self._register_parts(task, group, own, connect_timeout, deadline)

        results = await self._register_everywhere(by_task, register)
        missing = dict.fromkeys(digest for result in results for digest in result.missing)
        shares = {
            task: self._share(task, group, result.handle)
            for (task, group), result in zip(by_task.items(), results, strict=True)
        }
        if missing:
            await self._release(share for share in shares.values() if share.handle)
            return Registered(0, tuple(missing))
        handle = next(self._handles)
        # What has to travel begins first.
        ordered = dict(sorted(shares.items(), key=lambda item: item[0] == self._own))
        self._steps[handle] = _Registered(ordered, n_fetches)
        return Registered(handle)

    async def run(
        self,
        handle: int,
        deadline: Deadline,
        feeds: Sequence[Array],
        client: Client | None = None,
    ) -> Sequence[Array]:
        """See `MasterSession.run`."""
        self._check_open()
        step = self._steps.get(handle)
        if step is None:
            raise InvalidArgumentError(f"step {handle} was not registered in this session")
        running = asyncio.current_task()
        assert running is not None
        self._running.add(running)
        try:
            if deadline.timeout is None:
                return await self._run_shares(step, feeds, client)
            limit = asyncio.timeout(deadline.remaining())
            async with limit:
                return await self._run_shares(step, feeds, client)
        except TimeoutError as error:
            if deadline.timeout is None or not limit.expired():
                raise
            tasks = ", ".join(map(str, step.shares))
            doing, reason = f"running the step on {tasks}", str(error.__cause__ or "")
            raise deadline.error(doing, _only(step.shares), reason) from None
        finally:
            self._running.discard(running)

    def release(self, handle: int) -> None:
        """See `MasterSession.release`."""
        step = self._steps.pop(handle, None)
        if step is not None:
            self._fleet.background.start(self._release(step.shares.values()))

    async def reset(
        self, containers: Sequence[str], connect_timeout: float, deadline: Deadline = FOREVER
    ) -> None:
        """See `MasterSession.reset`."""
        await self._reset(self, containers, connect_timeout, deadline)

    def close(self) -> None:
        """See `MasterSession.close`."""
        self._closed(self)
        shares = [share for step in self._steps.values() for share in step.shares.values()]
        self._steps.clear()
        # The peers' streams may be slow; nobody waits for them to forget.
        self._fleet.background.start(self._release(shares))

    def end(self, error: AbortedError) -> None:
        """Ends the session from this side: what runs is cancelled, later calls get `error`."""
        self._end = error
        for call in self._running:
            call.cancel()

    # Registering and running shares -----------------------------------------------------------

    async def _register_everywhere(
        self,
        by_task: Mapping[Task, Sequence[Plan]],
        register: Callable[[Task, Sequence[Plan]], Coroutine[Any, Any, Registered]],
    ) -> list[Registered]:
        """Registers parts on every task; if one of them fails, on none."""
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
            shares = [self._share(t, by_task[t], r.handle) for t, r in kept.items()]
            self._fleet.background.start(self._release(shares))
            raise

    def _share(self, task: Task, plans: Sequence[Plan], handle: int) -> _Share:
        return _Share(
            task, self._incarnations[task], handle, feed_indices(plans), fetch_indices(plans)
        )

    async def _register_parts(
        self,
        task: Task,
        plans: Sequence[Plan],
        artifacts: Artifacts,
        connect_timeout: float,
        deadline: Deadline,
    ) -> Registered:
        doing = f"registering the step on {task}"
        if task == self._own:
            self._incarnations[task] = self._fleet.welcome().incarnation
            async with deadline.bounding(doing, str(task)):
                return await self._fleet.worker.register(plans, artifacts)
        peer = self._fleet.peers[task]
        # A task that was there before is not about to start: it need not be waited for.
        seen = task in self._incarnations
        patience = min(connect_timeout, REDIAL_TIMEOUT_S) if seen else connect_timeout
        welcome = await peer.connect(patience, deadline)
        # A session's state belongs to one life of each task: the first one that it met.
        incarnation = self._incarnations.setdefault(task, welcome.incarnation)
        async with deadline.bounding(doing, str(task)):
            return await peer.register(incarnation, plans, artifacts)

    async def _run_shares(
        self, step: _Registered, feeds: Sequence[Array], client: Client | None
    ) -> Sequence[Array]:
        step_id = next(self._step_ids)
        if len(step.shares) == 1:
            (share,) = step.shares.values()
            return await self._run_share(share, step_id, feeds, client)
        values = await _StepRunner(
            step.shares, lambda share: self._run_share(share, step_id, feeds, client)
        ).run()
        return [values[index] for index in range(step.n_fetches)]

    async def _run_share(
        self, share: _Share, step_id: int, feeds: Sequence[Array], client: Client | None
    ) -> Sequence[Array]:
        """Runs a share; its values are in the order of their indices."""
        if share.feeds and share.feeds[-1] >= len(feeds):
            raise InvalidArgumentError(
                f"the step needs {share.feeds[-1] + 1} fed values, got {len(feeds)}"
            )
        given = [feeds[index] for index in share.feeds]
        if share.task == self._own:
            values = await self._fleet.worker.run(step_id, share.handle, given, client)
        else:
            peer = self._fleet.peers[share.task]
            values = await peer.run(share.incarnation, step_id, share.handle, given)
        if len(values) != len(share.fetches):
            raise InternalError(
                f"{share.task} gave {len(values)} values where {len(share.fetches)} were asked for",
                task=str(share.task),
            )
        return values

    async def _release(self, shares: Iterable[_Share]) -> None:
        for share in shares:
            if share.task == self._own:
                self._fleet.worker.release(share.handle)
                continue
            with suppress(UnavailableError):  # it is gone, and what was registered with it
                await self._fleet.peers[share.task].release(share.incarnation, share.handle)

    def _check_open(self) -> None:
        if self._end is not None:
            raise AbortedError(self._end.message)


def _only(tasks: Iterable[Task]) -> str | None:
    """The name of the task if there is only one."""
    names = list(map(str, tasks))
    return names[0] if len(names) == 1 else None


class _StepRunner:
    """Acts out the step state machine on the event loop."""

    def __init__(
        self,
        shares: Mapping[Task, _Share],
        run_share: Callable[[_Share], Coroutine[Any, Any, Sequence[Array]]],
    ) -> None:
        self._shares = shares
        self._run_share = run_share
        self._step = Step(shares)
        self._calls: dict[Task, asyncio.Future[Sequence[Array]]] = {}
        self._values: dict[int, Array] = {}
        self._outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> dict[int, Array]:
        self._act(self._step.begin())
        try:
            await self._outcome
        except asyncio.CancelledError:
            self._act(self._step.cancelled(CancelledError("Step was cancelled")))
            ended = await asyncio.gather(*self._calls.values(), return_exceptions=True)
            for error in ended:
                if isinstance(error, asyncio.CancelledError) and str(error):
                    raise asyncio.CancelledError(str(error)) from None  # what its share waited for
            raise
        return self._values

    def _act(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case StartParts(task):
                    call = begin(self._run_share(self._shares[task]))
                    # A callback, for a call that is cancelled before it begins runs no line.
                    call.add_done_callback(partial(self._ended, task))
                    self._calls[task] = call
                case StopParts(task):
                    self._calls[task].cancel()
                case Fail(error):
                    if not self._outcome.done():
                        self._outcome.set_exception(error)
                case _:
                    if not self._outcome.done():
                        self._outcome.set_result(None)

    def _ended(self, task: Task, call: asyncio.Future[Sequence[Array]]) -> None:
        error = CancelledError("the share was stopped") if call.cancelled() else call.exception()
        if error is None:
            self._values |= zip(self._shares[task].fetches, call.result(), strict=True)
            self._act(self._step.parts_finished(task))
            return
        if not isinstance(error, OpError):
            error = InternalError(f"{type(error).__name__}: {error}", task=str(task))
        self._act(self._step.parts_failed(task, error))

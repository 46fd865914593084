"""`CheckpointSaver`: executes one save or restore on the tasks of a cluster.

A save: steps are paused, each task that has state takes its snapshot, the pauses end, the tasks
write, and one of them commits. What can be seen in part is only what changes state of several tasks
in one step, or resources and variables together: such steps have to end before the snapshots. If
they do not in a short time, because one waits for what the pause holds back, everything goes on and
it is tried again with more time. A checkpoint exists from the commit on, and not before.

A consistent save pauses the steps of every task that answers. One that does not, and has nothing of
what is saved, is left out: the steps of a lost master have ended, because tasks cancel their parts.
If it is cut off from this task only, the tasks that have the state tell, and the save is refused.

A restore does so, too, for a few seconds: then it restores beside the steps of other masters.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Concatenate, ParamSpec, TypeVar

from jflow.base.cluster import Task
from jflow.base.deadline import Deadline
from jflow.errors import (
    AbortedError,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    OpError,
    ResourceExhaustedError,
    RestartedError,
    UnauthenticatedError,
    UnavailableError,
)
from jflow.state.core.claiming import SessionClaim
from jflow.state.core.saves import StateSaves
from jflow.state.core.task import RECONNECT_TIMEOUT_S, ClusterView, ConnectedTasks, new_name
from jflow.state.fencing import CLAIMS
from jflow.state.moves import StateId
from jflow.state.moves.directory import everything_around
from jflow.state.saves import PATIENCE_S, Pauses, SaveReport, StateItems, by_task

_LOG = logging.getLogger(__name__)
_CONNECT_S = 0.25
"""How long a restore waits for a task that has none of the state, in seconds."""
_BESIDE_OTHERS = "%s was restored beside steps of other sessions, which may have seen a part of it"

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")


class CheckpointSaver:
    """Executes one save or restore.

    Args:
      servers: the master's view of the cluster.
      session: whose steps are held back, unless those of all sessions are.
      prefix: the path of the checkpoint.
      items: what is saved or restored.
      patience: the longest time to wait for a task that does not answer, in seconds.
      deadline: of the call.
      claim: what the session works under; nothing if None.

    Attributes:
      is_private: whether some of it belongs to the session; a restore is then ended by `forget`.

    Raises:
      InvalidArgumentError: if there is nothing to save, or some of it is on no task of the cluster.
      MovedError: if some of it was on a task that has left.
    """

    def __init__(
        self,
        servers: ClusterView[Any, Any],
        session: object,
        prefix: str,
        items: StateItems,
        patience: Callable[[Task], float],
        deadline: Deadline,
        claim: SessionClaim | None = None,
    ) -> None:
        self._servers = servers
        self._claim = claim or SessionClaim(servers)
        self._own = servers.info().task
        self._session = session
        self._prefix = prefix
        self._clients = items.clients
        self._by_task = {task: own.to_bytes() for task, own in by_task(items).items()}
        self._driver = servers.driver
        self._states = [item.state for item in items.items]
        self.is_private = any(state.session for state in self._states)
        self._patience = patience
        self._deadline = deadline
        self._name = new_name(servers.driver)
        self._names = itertools.count()
        self._tasks = ConnectedTasks(servers.tasks)
        self._held_s = 0.0
        self._refused_at: float | None = None
        self._is_restore = False
        servers.gate.directory.check(everything_around(self._states))  # it may have left
        known_tasks = {*servers.info().tasks}
        for task in self._by_task:
            if task not in known_tasks:
                raise InvalidArgumentError(
                    f"there is no task {task} in the cluster; it has {[*map(str, known_tasks)]}"
                )
        if not self._by_task:
            raise InvalidArgumentError("there is nothing to save or restore")

    async def save(self, is_consistent: bool, about: Mapping[str, str]) -> SaveReport:
        """Saves the state. Raises as `ClusterState.save`."""
        start = self._driver.now()
        await self._connect()
        is_committing = has_taken = False

        async def take(seconds: float) -> list[int]:
            nonlocal has_taken
            if has_taken:
                await self._end(is_committed=False)  # what an attempt before this one has taken
            has_taken = True
            return await self._driver.all_of(self._take(task, seconds) for task in self._by_task)

        try:
            sizes = await self._run_undisturbed(take, is_consistent=is_consistent)
            shards = await self._driver.all_of(map(self._write, self._by_task))
            await self._claim.spread(self._by_task)  # once more: there may have been a later claim
            is_committing = True
            # What a client says of claims is none: tasks that restore this learn of them.
            about = {key: text for key, text in about.items() if key != CLAIMS}
            if claims := self._servers.fences.to_text():
                about = {**about, CLAIMS: claims}
            first = next(iter(self._by_task))
            await self._tasks.call(
                first, StateSaves.commit, self._name, self._prefix, shards, about
            )
        except ResourceExhaustedError:
            is_committing = False  # the manifest could not be written
            raise
        finally:
            # Nothing that may be committed is removed; the next save removes it if it was not.
            self._driver.start(self._end(is_committed=is_committing))
        return self._report(sizes, start)

    async def restore(self) -> SaveReport:
        """Restores the state. Raises as `ClusterState.restore`."""
        start = self._driver.now()
        await self._connect()
        self._is_restore = True

        async def put(seconds: float) -> None:
            await self._driver.all_of(
                self._tasks.call(task, StateSaves.close_writes, self._name, seconds)
                for task in self._by_task
            )
            # From here on it is not tried again: some tasks may have set what others have not.
            try:
                await self._driver.all_of(
                    self._tasks.call(task, StateSaves.put, self._name, PATIENCE_S)
                    for task in self._by_task
                )
            except DeadlineExceededError as error:
                raise AbortedError(f"only a part was restored: {error.message}") from None

        try:
            sizes = await self._driver.all_of(
                self._tasks.call(
                    task, StateSaves.load, self._name, self._prefix, items, self._clients
                )
                for task, items in self._by_task.items()
            )
            # The checkpoint may be of a later claim, of which the tasks have heard by reading it.
            await self._claim.spread(self._by_task)
            await self._run_undisturbed(put, is_consistent=self._session is not None)
        except BaseException:
            self._driver.start(self.forget())
            raise
        return self._report(sizes, start)

    def _report(self, sizes: Sequence[int], start: float) -> SaveReport:
        tasks = tuple(map(str, self._by_task))
        return SaveReport(sum(sizes), self._held_s, self._driver.now() - start, self._prefix, tasks)

    # Taking -----------------------------------------------------------------------------------

    async def _run_undisturbed(
        self, act: Callable[[float], Awaitable[R]], *, is_consistent: bool
    ) -> R:
        """Runs `act` while no step's changes can be saved in part; retries with longer pauses.

        A restore goes on beside the steps of other masters if they do not end.

        Raises:
          DeadlineExceededError: if steps that run do not end in time.
        """
        attempts = Pauses(self._states, self._deadline, self._driver.now)
        for seconds in attempts:
            start = self._driver.now()
            if is_consistent and self._is_restore and attempts.are_others_late(seconds):
                is_consistent = False
                _LOG.warning(_BESIDE_OTHERS, self._prefix)
            try:
                async with self._pause(seconds, is_consistent=is_consistent) as resume:
                    result = await act(seconds)
                    if self._is_restore:
                        await self._end_restore(resume)
                        return result
                    if await resume():
                        return result
                error: OpError = AbortedError("a pause ended before every task had its snapshot")
            except (DeadlineExceededError, _DisturbedError) as caught:
                error = caught
            finally:
                self._held_s = self._driver.now() - start
            attempts.failed(seconds, error)
            await self._driver.sleep(seconds)  # what was held back goes on meanwhile
        raise AssertionError("attempts never end")

    async def _end_restore(self, resume: Callable[[], Awaitable[bool]]) -> None:
        """Ends the pause of a restore, which is done, whether the pause has lasted or not."""
        with suppress(OpError):
            if await resume():
                return
        _LOG.warning(_BESIDE_OTHERS, self._prefix)

    @asynccontextmanager
    async def _pause(
        self, seconds: float, *, is_consistent: bool
    ) -> AsyncIterator[Callable[[], Awaitable[bool]]]:
        """Context manager that pauses steps; yields `resume`, which returns whether all lasted."""
        name = f"{self._name}-{next(self._names)}"
        tasks = await self._masters() if is_consistent else []
        gate = self._servers.gate
        states: Sequence[StateId] = self._states

        async def resume() -> bool:
            gate.resume(name)
            ends = (self._on_master(task, StateSaves.resume, name) for task in tasks)
            return all(await self._driver.all_of(ends))

        await gate.released(states)
        gate.directory.pause(
            name,
            states,
            is_exclusive=self._is_restore,
            session=None if is_consistent else self._session,
        )
        try:
            try:
                async with self._driver.limit(seconds):
                    if is_consistent:
                        # Longer than the attempt takes, which waits for two things in a row,
                        # and in a restore for `put`.
                        longest = 3 * seconds + (PATIENCE_S if self._is_restore else 0.0)
                        arguments = (name, states, longest, self._is_restore, tasks)
                        await self._driver.all_of(
                            self._on_master(task, StateSaves.pause, *arguments) for task in tasks
                        )
                    else:
                        await gate.quiet(name)
            except TimeoutError:
                raise _DisturbedError(
                    f"{self._own} waited for steps that change {states[0]} and more"
                ) from None
            yield resume
        finally:
            gate.resume(name)
            self._driver.start(self._end_quietly(resume()))

    async def _take(self, task: Task, seconds: float) -> int:
        return await self._tasks.call(
            task, StateSaves.take, self._name, self._by_task[task], seconds, self._clients
        )

    async def _write(self, task: Task) -> bytes:
        return await self._tasks.call(task, StateSaves.write, self._name, self._prefix)

    # Ending -----------------------------------------------------------------------------------

    async def _end(self, *, is_committed: bool) -> None:
        for task in self._by_task:
            await self._end_quietly(
                self._tasks.call(task, StateSaves.end, self._name, is_committed)
            )

    async def forget(self) -> None:
        """Frees what was restored for the session alone, once the session does not need it."""
        for task in self._by_task:
            await self._end_quietly(self._tasks.call(task, StateSaves.forget, self._name))

    async def _end_quietly(self, call: Awaitable[Any]) -> None:
        """Awaits a call that ends something on a task; ignores errors, as a lost task ended it."""
        with suppress(OpError):
            await call

    # Calls ------------------------------------------------------------------------------------

    async def _connect(self) -> None:
        """Connects to the tasks that have state to save or restore, and tells them of the claim."""

        async def connect(task: Task) -> None:
            await self._tasks.connect(task, self._patience(task), self._deadline)

        await self._driver.all_of(map(connect, self._by_task))
        await self._claim.spread(self._by_task)

    async def _masters(self) -> Sequence[Task]:
        """Returns the tasks whose steps are paused: all that reply."""

        async def answers(task: Task) -> bool:
            if task in self._by_task:
                return True
            try:
                await self._tasks.connect(task, min(self._patience(task), longest), self._deadline)
            except left_out as error:
                _LOG.log(level, "%s: steps of %s are not paused", self._prefix, error.task)
                return False
            return True

        longest, level = RECONNECT_TIMEOUT_S, logging.WARNING
        left_out: tuple[type[OpError], ...] = (UnavailableError,)
        if self._is_restore:
            longest, level, left_out = _CONNECT_S, logging.INFO, (*left_out, UnauthenticatedError)
        tasks = [*self._servers.info().tasks]
        reports = await self._driver.all_of(map(answers, tasks))
        return [task for task, is_there in zip(tasks, reports, strict=True) if is_there]

    async def _on_master(
        self,
        task: Task,
        method: Callable[Concatenate[S, P], Awaitable[R]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Calls a task to pause or resume; raises to retry if it is lost and has no state."""
        try:
            return await self._tasks.call(task, method, *args, **kwargs)
        except (RestartedError, UnavailableError) as error:
            if task in self._by_task:
                raise
            raise _DisturbedError(f"{task} was lost: {error.message}") from None
        except FailedPreconditionError as error:
            self._refused_at = self._refused_at or self._driver.now()
            # It may be lost, and not missed yet; a restore goes on without it in the end.
            waited = self._driver.now() - self._refused_at
            if self._is_restore or waited < self._servers.liveness_s():
                raise _DisturbedError(error.message) from None
            raise UnavailableError(
                f"a consistent save is not possible: {error.message}; save from another task, end "
                "its sessions, or save without consistent=True"
            ) from None


class _DisturbedError(AbortedError):
    """Raised to retry: steps did not end in the time of an attempt, or their task was lost."""

"""`StateSaves`: a task's part in saves and restores of state.

A save pauses steps at their masters, takes a snapshot of each task, ends the pauses and lets each
task write what it has taken; one task then commits the checkpoint. Whatever a master leaves behind,
because it fails or is lost, ends with its stream: pauses, leases and files that were not committed.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Annotated

import msgspec

from jflow.base.cluster import Task
from jflow.base.drivers import TimerHandle
from jflow.base.failpoints import async_failpoint
from jflow.base.roles import AccessRole
from jflow.base.text import seconds_text
from jflow.base.versions import Since
from jflow.errors import AbortedError, DeadlineExceededError, InvalidArgumentError, OpError
from jflow.state.checkpoint_files import ShardRecord, commit, locate, open_checkpoint
from jflow.state.core.moves import StateMoves
from jflow.state.core.remote import remote
from jflow.state.core.task import TaskCore, new_name
from jflow.state.core.unpaused import UnpausedMasters
from jflow.state.fencing import CLAIMS, Fences
from jflow.state.moves import Change, StateId, Use
from jflow.state.moves.directory import everything_around
from jflow.state.moves.states import VARIABLE
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.resources import VariableId
from jflow.state.resources.kernel import Wanted
from jflow.state.saves import RestoreOfTask, SnapshotOfTask, StateItem, StateItems


@dataclass
class _Save:
    """A snapshot that the task has taken, and its shard.

    Attributes:
      prefix, shard: the checkpoint, and the file once it is written.
      is_writing: whether writing has begun, which ends the leases of what is written.
      is_over: whether the save has ended; a shard that is still being written is dropped then.
    """

    snapshot: SnapshotOfTask
    prefix: str = ""
    shard: ShardRecord | None = None
    is_writing: bool = False
    is_over: bool = False

    def has_ended(self) -> bool:
        """Whether the save has ended; another thread may end it at any time."""
        return self.is_over


@dataclass
class _OpenWork:
    """The pauses, saves and restores that one caller has not ended, by name.

    Attributes:
      uses: keep what is being restored from moving.
      owners: the sessions that some of what was restored belongs to.
    """

    pauses: dict[str, TimerHandle] = field(default_factory=dict)
    saves: dict[str, _Save] = field(default_factory=dict)
    restores: dict[str, RestoreOfTask] = field(default_factory=dict)
    closings: dict[str, Wanted] = field(default_factory=dict)
    uses: dict[str, Use] = field(default_factory=dict)
    owners: dict[str, Collection[str]] = field(default_factory=dict)


class StateSaves:
    """The saves and restores of one caller on a task; what it has not ended ends with its stream.

    The name is that of the save or restore; no two have the same. Items are packed `StateItems`.

    Args:
      state: the task.
      moves: what the steps wait at, and where state is.
      roots: the directories that checkpoints may be in.
      is_used: whether registered plans use resources of a session.
      fences: the claims that the task has heard of.
    """

    def __init__(
        self,
        state: TaskCore,
        moves: StateMoves,
        roots: AllowedDirectories,
        is_used: Callable[[str], bool],
        fences: Fences,
    ) -> None:
        self._state = state
        self._moves = moves
        self._roots = roots
        self._is_used = is_used
        self._fences = fences
        self._masters = UnpausedMasters()
        self._caller: Task | None = state.task
        self._open = _OpenWork()

    def of_caller(self, caller: Task | None) -> StateSaves:
        """Returns the `StateSaves` of another caller on the same task, with its task if known."""
        copied = copy.copy(self)
        copied._open, copied._caller = _OpenWork(), caller
        return copied

    # Pauses -----------------------------------------------------------------------------------

    def registered(self, handle: int, changes: Collection[Change]) -> None:
        """Notes that the caller has registered plans that make these changes."""
        self._masters.registered(handle, self._caller, frozenset().union(*changes))

    def released(self, handle: int) -> None:
        """Notes that plans of the caller were released."""
        self._masters.released(handle)

    @remote(needs=AccessRole.CLUSTER)
    async def pause(
        self,
        name: str,
        states: Sequence[StateId],
        seconds: float,
        is_exclusive: bool,
        masters: Sequence[Task],
    ) -> None:
        """Bars the task's master from starting steps that change the state, until `resume`.

        Waits until none is running whose changes could be seen in part. The pause ends by itself
        after its seconds. If it is exclusive, steps that only read the state have to wait, too.
        The masters are the tasks that are paused.

        Raises:
          FailedPreconditionError: if steps of another master change the state on this task.
          MovedError: if some of the state is elsewhere.
        """
        self._check_new(name, self._open.pauses)
        await self._moves.steps.released(states)
        self._moves.steps.directory.pause(name, states, is_exclusive=is_exclusive)
        self._open.pauses[name] = self._state.driver.later(seconds, self._end_pause, name)
        try:
            self._masters.begin_pause(name, masters, states)
            await self._moves.steps.quiet(name)
        except BaseException:
            self._end_pause(name)
            raise

    @remote(needs=AccessRole.CLUSTER)
    async def resume(self, name: str) -> bool:
        """Ends a pause; returns whether it was in force until now."""
        return self._end_pause(name)

    def _end_pause(self, name: str) -> bool:
        timer = self._open.pauses.pop(name, None)
        if timer is None:
            return False
        timer.cancel()
        self._moves.steps.resume(name)
        return self._masters.end_pause(name)

    # Saves ------------------------------------------------------------------------------------

    @remote(needs=AccessRole.CLUSTER)
    async def take(
        self,
        name: str,
        items: bytes,
        seconds: float,
        clients: Annotated[str, Since(12)] = "",
    ) -> int:
        """Takes a snapshot at one moment, without copying variables; returns its size in bytes.

        `clients` says whose effects are in it; see `StateItems`.

        Raises:
          DeadlineExceededError: if steps that are in the middle of their writes do not end within
            these seconds.
          FailedPreconditionError: if a variable is not initialized.
          MovedError: if some of the state is elsewhere.
        """
        self._check_new(name, self._open.saves)
        own_items = self._own(items, clients)
        await self._moves.plans.released([item.state for item in own_items.items])
        if (action := async_failpoint("worker.before_snapshot")) is not None:
            await action
        containers = self._state.containers
        snapshot, closing = SnapshotOfTask(containers, own_items), containers.closing()
        save = self._open.saves[name] = _Save(snapshot)
        try:
            await self._wait_for(seconds, closing, snapshot.wanted)
            await self._state.driver.work(snapshot.complete)
            if save.is_over:
                raise AbortedError("the save was given up while the snapshot was taken")
        except BaseException:
            self._end(name)
            raise
        finally:
            containers.reopen(closing)
        return snapshot.n_bytes

    @remote(needs=AccessRole.CLUSTER)
    async def write(self, name: str, prefix: str) -> bytes:
        """Writes a snapshot to a shard; returns its packed `ShardRecord`.

        Raises:
          PermissionDeniedError: if the prefix is outside the checkpoint roots of the task.
          ResourceExhaustedError: if the disk is full.
        """
        save = self._open.saves.get(name)
        if save is None:
            raise AbortedError(
                "the snapshot is gone, because the save was given up",
                task=str(self._state.task),
            )
        task = self._state.task
        shard = f"{task.job}-{task.index}"
        record = await self._state.driver.work(self._write_shard, save, prefix, name, shard)
        return record.to_bytes()

    def _write_shard(self, save: _Save, prefix: str, number: str, shard: str) -> ShardRecord:
        save.prefix, save.is_writing = prefix, True
        if save.has_ended():
            save.snapshot.drop()
            raise AbortedError("the save was given up before its shard was written")
        try:
            with self._naming_checkpoint("saving", prefix):
                record = save.snapshot.write(prefix, number, shard, self._roots)
        finally:
            save.snapshot.drop()
        save.shard = record
        if save.is_over:
            self._discard(save)
            raise AbortedError("the save was given up while its shard was written")
        return record

    def _discard(self, save: _Save) -> None:
        """Removes an uncommitted shard, if possible; otherwise the next save does."""
        if save.shard is not None:
            with suppress(OpError), locate(save.prefix, self._roots) as place:
                place.storage.remove(place.file(save.shard.file))

    @remote(needs=AccessRole.CLUSTER)
    async def commit(
        self, name: str, prefix: str, shards: Sequence[bytes], about: Mapping[str, str]
    ) -> None:
        """Commits shards as the checkpoint of this prefix, replacing any previous one."""
        records = [ShardRecord.from_bytes(shard) for shard in shards]
        await self._state.driver.work(self._commit_shards, name, prefix, records, about)
        if (action := async_failpoint("worker.after_commit")) is not None:
            await action

    def _commit_shards(
        self, number: str, prefix: str, shards: Sequence[ShardRecord], about: Mapping[str, str]
    ) -> None:
        with self._naming_checkpoint("saving", prefix), locate(prefix, self._roots) as place:
            commit(place, number, shards, about=about)

    @remote(needs=AccessRole.CLUSTER)
    async def end(self, name: str, is_committed: bool) -> None:
        """Drops a snapshot, and removes its shard unless it is committed."""
        save = self._end(name)
        if save is not None and save.shard is not None and not is_committed:
            await self._state.driver.work(self._discard, save)

    def _end(self, name: str) -> _Save | None:
        save = self._open.saves.pop(name, None)
        if save is not None:
            save.is_over = True
            if not save.is_writing:
                save.snapshot.drop()
        return save

    async def save_variables(
        self, prefix: str, seconds: float, without: Collection[StateId] = ()
    ) -> int:
        """Saves the variables of the task as a checkpoint of its own, without a master.

        Each has its name as its key; variables of several containers or devices that have the same
        name have the container and the device in their keys, too.

        Args:
          prefix: the path of the checkpoint.
          seconds: the longest time that it may take.
          without: variables to leave out, such as those that are written without an end.

        Returns:
          How many variables were saved; if there are none, nothing is written.

        Raises:
          DeadlineExceededError: if it takes longer.
          OpError: as `take`, `write` and `commit`.
        """
        items = self._items_of_task(without)
        if not items.items:
            return 0
        name = new_name(self._state.driver)
        claims = self._fences.to_text()
        try:
            async with self._state.driver.limit(seconds):
                await self.take(name, items.to_bytes(), seconds)
                shard = await self.write(name, prefix)
                await self.commit(name, prefix, [shard], {CLAIMS: claims} if claims else {})
        except TimeoutError:
            raise DeadlineExceededError(
                f"saving the variables of {self._state.task} to {prefix!r} took longer than "
                f"{seconds_text(seconds)}",
                task=str(self._state.task),
            ) from None
        finally:
            self._end(name)
        return len(items.items)

    def _items_of_task(self, without: Collection[StateId]) -> StateItems:
        """Returns what saves the initialized variables of the task but for some."""
        variables = self._state.containers.variables()
        n_named = Counter(one.name for one in variables)

        def key(one: VariableId) -> str:
            return one.name if n_named[one.name] == 1 else f"{one.container}{one.device}/{one.name}"

        return StateItems(
            tuple(
                StateItem(
                    key(one),
                    one.device,
                    VARIABLE,
                    one.container,
                    one.name,
                    dtype=state.spec.dtype,
                    shape=tuple(state.spec.shape),
                    sharding=state.spec.sharding,
                )
                for one, state in sorted(variables.items(), key=itemgetter(0))
                if one.state not in without
            )
        )

    # Restores ---------------------------------------------------------------------------------

    @remote(needs=AccessRole.CLUSTER)
    async def load(
        self, name: str, prefix: str, items: bytes, clients: Annotated[str, Since(12)] = ""
    ) -> int:
        """Reads state from a checkpoint without setting it; returns its size in bytes.

        `clients` says whose effects are restored; see `StateItems`.

        Raises:
          DataLossError: if a file is damaged.
          InvalidArgumentError: if something has another dtype or shape.
          NotFoundError: if there is no such checkpoint, or it lacks a key.
          PermissionDeniedError: as `write`.
        """
        self._check_new(name, self._open.restores)
        own_items = self._own(items, clients)
        await self._moves.plans.released([item.state for item in own_items.items])
        restore, claims = await self._state.driver.work(self._read_checkpoint, prefix, own_items)
        self._fences.learn_text(claims)
        self._open.restores[name] = restore
        return restore.n_bytes

    def _read_checkpoint(self, prefix: str, wanted: StateItems) -> tuple[RestoreOfTask, str]:
        """Reads the state to restore, and the claims that the checkpoint keeps."""
        containers, device_of = self._state.containers, self._state.devices.__getitem__
        with (
            self._naming_checkpoint("restoring", prefix),
            open_checkpoint(prefix, self._roots) as checkpoint,
        ):
            restore = RestoreOfTask(containers, wanted, checkpoint, device_of)
            return restore, checkpoint.about.get(CLAIMS, "")

    @remote(needs=AccessRole.CLUSTER)
    async def close_writes(self, name: str, seconds: float) -> None:
        """Waits until no step of the task is between its writes.

        None begins to write until `put` or `forget`, if it writes more than once. Until then the
        state does not move, either. Raises as `take`.
        """
        self._reopen(name)
        restore = self._open.restores.get(name)
        if restore is None:
            raise _given_up()
        plans = self._moves.plans
        use = plans.directory.add(restore.states | everything_around(restore.states))
        await plans.enter(use, (name, self._caller))
        self._open.uses[name] = use
        closing = self._open.closings[name] = self._state.containers.closing()
        try:
            await self._wait_for(seconds, closing)
        except BaseException:
            self._reopen(name)
            raise

    def _reopen(self, name: str) -> None:
        closing = self._open.closings.pop(name, None)
        if closing is not None:
            self._state.containers.reopen(closing)
        use = self._open.uses.pop(name, None)
        if use is not None:
            self._moves.plans.leave(use)

    @remote(needs=AccessRole.CLUSTER)
    async def put(self, name: str, seconds: float) -> None:
        """Sets the state that `load` has read, at one moment. Raises as `take`."""
        restore = self._open.restores.pop(name, None)
        if restore is None:
            raise _given_up()
        if (action := async_failpoint("worker.before_restore")) is not None:
            await action
        self._open.owners[name] = restore.owners
        try:
            await self._wait_for(seconds, restore.wanted)
            await self._state.driver.work(restore.finish)
        finally:
            self._reopen(name)

    @remote(needs=AccessRole.CLUSTER)
    async def forget(self, name: str) -> None:
        """Drops what `load` has read, and frees the state of sessions without registered plans."""
        self._forget(name)

    def _forget(self, name: str) -> None:
        self._reopen(name)
        self._open.restores.pop(name, None)
        # The state of a session is freed with its last plans, of which there may be none.
        for owner in self._open.owners.pop(name, ()):
            if not self._is_used(owner):
                self._state.containers.end_session(owner)

    def close(self) -> None:
        """Ends everything that the caller has begun and not ended, when its stream ends."""
        for name in [*self._open.pauses]:
            self._end_pause(name)
        for name in [*self._open.saves]:
            # Another task may be committing what is written, so it is left to the next save.
            self._end(name)
        for name in {*self._open.restores, *self._open.uses, *self._open.owners}:
            self._forget(name)

    # Common parts -----------------------------------------------------------------------------

    def _own(self, items: bytes, clients: str) -> StateItems:
        own_items = msgspec.structs.replace(StateItems.from_bytes(items), clients=clients)
        for item in own_items.items:
            if item.device not in self._state.devices:
                raise InvalidArgumentError(
                    f"{self._state.task} has no device {item.device}, which is to have {item}; "
                    f"it has {', '.join(self._state.devices)}"
                )
        return own_items

    @contextmanager
    def _naming_checkpoint(self, doing: str, prefix: str) -> Iterator[None]:
        """Context manager that adds the checkpoint and the task to errors."""
        task = str(self._state.task)
        try:
            yield
        except OpError as error:
            error.with_context(task=task, doing=f"{doing} {prefix!r} on {task}")
            raise

    def _check_new(self, name: str, known: Mapping[str, object]) -> None:
        if name in known:
            raise InvalidArgumentError(f"{name!r} has begun already")

    async def _wait_for(self, seconds: float, *wanted: Wanted) -> None:
        """Waits for several attempts within a time limit in seconds."""
        cell, attempt = wanted[0]
        try:
            async with self._state.driver.limit(seconds):
                for cell, attempt in wanted:
                    await self._state.waited((cell, attempt))
        except TimeoutError:
            raise DeadlineExceededError(
                f"steps that write variables of {self._state.task} did not end within "
                f"{seconds_text(seconds)}; it {cell.reason(attempt) or 'waited for them'}",
                task=str(self._state.task),
            ) from None


def _given_up() -> AbortedError:
    return AbortedError("what was to be restored is gone, because the restore was given up")

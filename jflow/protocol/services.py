"""The services of a server, as their callers see them.

A method that is marked `remote` is an RPC, whose messages follow from its signature
(`signatures.py`). The messages of steps, which are made once and parsed once, are in `run_rpcs.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Protocol

from jflow.cluster import Task
from jflow.deadline import Deadline
from jflow.effects import Earlier, Effect
from jflow.fencing import Claim
from jflow.moves import End, StateId
from jflow.plan import Plan
from jflow.protocol.coroutines import Started
from jflow.protocol.credits import ReplySize
from jflow.protocol.records import (
    Artifacts,
    Client,
    DeviceRecord,
    Registered,
    Riding,
    SavedState,
    ServerInfo,
    Staging,
)
from jflow.protocol.signatures import remote
from jflow.trace.record import TaskRecord
from jflow.values import Array
from jflow.watch import SessionWaits, StatusRequest, TaskReport


class SaveService(Protocol):
    """The saves and restores of one caller on a task; what it has not ended ends with its stream.

    The name is that of the save or restore; no two have the same. Items are packed `StateItems`.
    """

    @remote()
    async def pause(
        self,
        name: str,
        states: Sequence[StateId],
        seconds: float,
        is_exclusive: bool,
        masters: Sequence[Task],
    ) -> None:
        """Lets the task's master start no step that changes state until `resume`.

        Waits until none is running whose changes could be seen in part. The pause ends by itself
        after its seconds. If it is exclusive, steps that only read the state have to wait, too.
        The masters are the tasks that are paused.

        Raises:
          FailedPreconditionError: if steps of another master change the state on this task.
          MovedError: if some of the state is elsewhere.
        """

    @remote()
    async def resume(self, name: str) -> bool:
        """Ends a pause; returns whether it had lasted until now."""

    @remote()
    async def take(self, name: str, items: bytes, seconds: float) -> int:
        """Takes a snapshot at one moment, without copying variables; returns its size in bytes.

        Raises:
          DeadlineExceededError: if steps that are in the middle of their writes do not end within
            these seconds.
          FailedPreconditionError: if a variable is not initialized.
          MovedError: if some of the state is elsewhere.
        """

    @remote()
    async def write(self, name: str, prefix: str) -> bytes:
        """Writes a snapshot to a file; returns its packed `ShardRecord`.

        Raises:
          PermissionDeniedError: if the prefix is outside the checkpoint roots of the task.
          ResourceExhaustedError: if the disk is full.
        """

    @remote()
    async def commit(
        self, name: str, prefix: str, shards: Sequence[bytes], about: Mapping[str, str]
    ) -> None:
        """Makes shards the checkpoint of this prefix, in place of a former one."""

    @remote()
    async def end(self, name: str, is_committed: bool) -> None:
        """Forgets a snapshot, and removes its file unless it is committed."""

    @remote()
    async def load(self, name: str, prefix: str, items: bytes) -> int:
        """Reads state from a checkpoint without setting it; returns its size in bytes.

        Raises:
          DataLossError: if a file is damaged.
          InvalidArgumentError: if something has another dtype or shape.
          NotFoundError: if there is no such checkpoint, or it lacks a key.
          PermissionDeniedError: as `write`.
        """

    @remote()
    async def close_writes(self, name: str, seconds: float) -> None:
        """Waits until no step of the task is in the middle of its writes.

        None begins to write until `put` or `forget`, if it writes more than once. Raises as `take`.
        """

    @remote()
    async def put(self, name: str, seconds: float) -> None:
        """Sets the state to what `load` has read, at one moment. Raises as `take`."""

    @remote()
    async def forget(self, name: str) -> None:
        """Forgets what `load` has read, and frees resources of sessions that use none of them."""


class WatchedCluster(Protocol):
    """The tasks of a cluster, as watchers see them.

    Every task is called at once and has `seconds` to answer. No task is waited for longer than that
    and none fails the call; its report says how it answers. Without tasks, all are meant.

    Raises:
      InvalidArgumentError: if the cluster has no such task.
    """

    @remote(doing="inspecting the cluster")
    async def inspect(
        self, request: StatusRequest, tasks: Sequence[Task], seconds: float, deadline: Deadline
    ) -> Sequence[TaskReport]:
        """What tasks are, hold and do; the task of this master first."""

    @remote(doing="stopping tasks")
    async def stop(
        self, tasks: Sequence[Task], seconds: float, deadline: Deadline
    ) -> Sequence[TaskReport]:
        """Stops the servers of tasks; that of this master last."""


class WorkerService(Protocol):
    """A worker, as the masters of the cluster call it. Every error is an `OpError`."""

    @property
    def saves(self) -> SaveService:
        """The saves and restores of the caller."""

    async def register(
        self,
        plans: Sequence[Plan],
        artifacts: Artifacts,
        is_restartable: bool = False,
        claim: Claim | None = None,
    ) -> Registered:
        """Compiles and links plans for devices of this task, and keeps them ready to run.

        Raises:
          FencedError: if there was a later claim, now or whenever they are run.
          MovedError: if state that they use has moved.
        """

    async def run(
        self,
        step: int,
        handle: int,
        feeds: Sequence[Array],
        client: Client | None = None,
        records: list[TaskRecord] | None = None,
        staging: Staging | None = None,
        riding: Riding | None = None,
    ) -> Sequence[Array]:
        """Runs registered plans; values are in the order of their indices.

        `client` is given only on the task that the client is connected to. If there are `records`,
        the step is traced, and what this task notes is added to them. With `staging`, what the
        plans write is applied once: when `decide_effect` says so, or at once if this task is alone.
        What may ride on the reply is added to `riding` instead of being sent.

        Raises:
          ConflictError: if an older step has what it waits for; nothing was done.
          AbortedError: if a later attempt of the step has taken over.
          UnimplementedError: if the plans do more than to write variables, and are to be staged.
        """

    def begin(
        self, step: int, handle: int, feeds: Sequence[Array], staging: Staging | None = None
    ) -> Started[Sequence[Array]] | None:
        """Begins `run` in one plain function, maybe outside of tasks.

        Returns:
          None unless nothing in the plans waits for other steps or takes long; nothing was done.
        """

    @remote()
    async def take_over_effect(self, effect: Effect) -> Earlier:
        """Takes over from earlier attempts of a step; see `Ledger.take_over`.

        Waits for one that is being applied.
        """

    @remote()
    async def decide_effect(
        self, effect: Effect, by: int, is_commit: bool, results: Sequence[Array] | None
    ) -> None:
        """Applies or drops what an attempt has staged; see `Ledger.commit`. It may be repeated.

        Args:
          effect: the attempt.
          by: the attempt that decides.
          is_commit: whether it is applied.
          results: what a repeat of the step is answered with; None if that is not kept.
        """

    @remote()
    async def learn_claim(self, name: str, epoch: int) -> int:
        """Refuses lower epochs of a name from now on, and ends what runs under one.

        Epoch 0 changes nothing.

        Returns:
          The highest epoch of the name that this task has heard of; 0 if there is none.
        """

    @remote()
    async def inspect(self, request: StatusRequest) -> Array:
        """What the task is, holds and does: a packed `TaskStatus`, u8[n]."""

    @remote()
    async def stop(self) -> None:
        """Stops the server of the task soon, after this call was answered."""

    @remote()
    async def reset(self, containers: Sequence[str]) -> None:
        """Frees containers of this task."""

    def release(self, handle: int) -> None:
        """Forgets registered plans."""

    @remote()
    async def hold_state(
        self, hold: str, states: Sequence[StateId], target: str, seconds: float
    ) -> None:
        """Starts no step that uses state until the hold ends; waits for those that run.

        A hold ends by `end_hold`, after its seconds, or with the stream of its caller.

        Raises:
          AbortedError: if another move holds some of it, or the hold ends.
          MovedError: if some of it is elsewhere.
        """

    @remote()
    async def save_state(self, hold: str) -> SavedState:
        """The state that a hold holds, of this task; nothing uses it until the hold ends."""

    @remote()
    async def put_state(self, hold: str, record: bytes, tensors: Sequence[Array]) -> None:
        """Keeps a copy of state that a hold holds, which becomes the state if that ends so.

        Raises:
          AlreadyExistsError: if there is other state of that name on the target.
        """

    @remote()
    async def end_hold(self, hold: str, end: End) -> None:
        """Ends a hold.

        Raises:
          AbortedError: if it has ended without a move, and this end is another one.
        """

    @remote()
    async def get_outcome(self, hold: str) -> bool:
        """Whether the state of this task that a hold held has moved; waits for its end."""


class WorkerSession(WorkerService, Protocol):
    """A worker service for one caller."""

    def deliver(self, step: int, edge: int, tensor: Array | None) -> bool:
        """Receives what another task sends under an edge of a step.

        Returns:
          Whether the caller has sent too much for steps that have not begun here.
        """

    async def make_room(self) -> None:
        """Waits until the caller may send more for such steps."""

    def needs_task(self, handle: int) -> bool:
        """Whether plans must be run in a task from the beginning, because of what may end them."""

    def close(self) -> None:
        """Forgets everything that the caller registered, after its running calls were cancelled."""


class MasterSession(Protocol):
    """A client's session, as the client calls it. Every error is an `OpError`.

    Every call has a deadline; `connect_timeout` is the longest time to wait for another task that
    does not answer, in seconds.
    """

    @property
    def watch(self) -> WatchedCluster:
        """The tasks of the cluster, as watchers see them."""

    @remote(doing="listing the devices of {tasks}")
    async def list_devices(
        self, tasks: Sequence[Task], connect_timeout: float, only_up: bool, deadline: Deadline
    ) -> Sequence[DeviceRecord]:
        """The devices of tasks; with `only_up` those that do not answer are omitted."""

    async def register(
        self,
        plans: Sequence[Plan],
        n_fetches: int,
        artifacts: Artifacts,
        connect_timeout: float,
        deadline: Deadline,
        restarted: Sequence[Task] = (),
    ) -> Registered:
        """Registers a step on every task that takes part.

        Tasks that are `restarted` may be in another life than when the session first used them.
        """

    async def run(
        self,
        handle: int,
        deadline: Deadline,
        feeds: Sequence[Array],
        client: Client | None = None,
        records: list[TaskRecord] | None = None,
        effect: Effect | None = None,
    ) -> Sequence[Array]:
        """Runs a registered step; one with callbacks requires `client`.

        If there are `records`, it is traced, and what each task notes is added to them. With an
        effect, it is applied once.
        """

    def begin(
        self, handle: int, deadline: Deadline, feeds: Sequence[Array], effect: Effect | None = None
    ) -> Started[Sequence[Array]] | None:
        """Begins `run` in a plain function, maybe outside of tasks.

        Returns:
          None if it cannot be begun so; nothing was done then.
        """

    @remote()
    async def find_waits(self) -> SessionWaits:
        """What the calls of this session wait for, as far as the tasks tell within a second."""

    def watch_tasks(self, handle: int) -> Awaitable[None] | None:
        """Waits until a task is lost that a registered step needs; None if it needs no other one.

        It goes on for ever if none is. It raises what the step would raise if it began then.
        """

    def reply_size(self, handle: int) -> ReplySize | None:
        """The size of a step's last reply; None if the step may wait for others, or is unknown."""

    def release(self, handle: int) -> None:
        """Forgets a registered step, here and on the tasks that take part."""

    @remote(doing="claiming {name!r}")
    async def claim(self, name: str, epoch: int, connect_timeout: float, deadline: Deadline) -> int:
        """Lets this session work under a claim of a name; returns its epoch.

        Args:
          name: the name.
          epoch: of a claim that another session of the program has made; 0 for a new one, which
            all tasks that are up hear of before this returns.
          connect_timeout, deadline: as of every call.

        Raises:
          FencedError: if there was a later claim; likewise every later call of this session.
        """

    @remote(doing="resetting containers")
    async def reset(
        self,
        containers: Sequence[str],
        connect_timeout: float,
        deadline: Deadline,
        tasks: Sequence[Task] = (),
    ) -> None:
        """Frees containers on tasks, all if none are given, and closes this server's sessions.

        Raises:
          InvalidArgumentError: if the cluster has no such task.
        """

    @remote(doing="moving {states[0].name!r} to {target}")
    async def move_state(
        self,
        states: Sequence[StateId],
        target: str,
        hold_s: float,
        connect_timeout: float,
        deadline: Deadline,
    ) -> None:
        """Moves state of one device to another device; no step is held for longer than `hold_s`.

        Raises:
          MovedError: if some of it is elsewhere.
        """

    @remote(doing="saving {prefix!r}")
    async def save(
        self,
        prefix: str,
        items: bytes,
        is_consistent: bool,
        about: Mapping[str, str],
        connect_timeout: float,
        deadline: Deadline,
    ) -> bytes:
        """Saves state as a checkpoint; returns a packed `SaveReport`.

        Args:
          prefix: the path of the checkpoint, as the tasks that have the state see it.
          items: packed `StateItems`.
          is_consistent: whether steps of all sessions that change the state are held back until
            every task has its snapshot; else those of this session.
          about: kept in the checkpoint.

        Raises:
          MovedError: if some of the state is elsewhere.
        """

    @remote(doing="restoring {prefix!r}")
    async def restore(
        self, prefix: str, items: bytes, connect_timeout: float, deadline: Deadline
    ) -> bytes:
        """Restores state from a checkpoint; returns a packed `SaveReport`. Raises as `save`."""

    def close(self) -> None:
        """Releases what the session registered, after its running calls were cancelled."""


class ServerRoles(Protocol):
    """The roles of a server: a master for clients, a worker for other servers."""

    def info(self) -> ServerInfo:
        """The current server info."""

    def open_master_session(self) -> MasterSession:
        """Opens a session for a client."""

    def open_worker_session(self, caller: Task | None) -> WorkerSession:
        """Opens a session for another server.

        Args:
          caller: the task of that server; None if it has none.
        """

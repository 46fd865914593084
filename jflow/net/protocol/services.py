"""The services of a server, as their callers see them.

A method that is marked `remote` is an RPC, whose messages follow from its signature
(`signatures.py`); those that keep the state of a task are in `jflow.state.core`. The messages of
steps, which are made once and parsed once, are in `run_rpcs.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

from jflow.base.cluster import Task
from jflow.base.deadline import Deadline
from jflow.base.drivers.coroutines import Started
from jflow.base.roles import AccessRole
from jflow.base.values import Array
from jflow.net.protocol.credits import ReplySize
from jflow.net.protocol.records import (
    UNKNOWN_OWNER,
    Artifacts,
    Client,
    DeviceRecord,
    Piggybacked,
    Registered,
    ServerInfo,
    StepOwner,
)
from jflow.net.protocol.rights import Rights
from jflow.plan import Plan
from jflow.plan.trace.record import TaskRecord
from jflow.state.core.claims import ClaimedRuns
from jflow.state.core.cluster_state import ClusterState
from jflow.state.core.effects import TaskEffects
from jflow.state.core.membership import ClusterMembers, TaskMembers
from jflow.state.core.moves import StateMoves
from jflow.state.core.remote import remote
from jflow.state.core.saves import StateSaves
from jflow.state.effects import Effect
from jflow.state.effects.effect import Staging
from jflow.state.journal import JournalPart, JournalPosition, TaskJournal
from jflow.state.watch import SessionWaits, StatusRequest, TaskReport


class WatchedCluster(Protocol):
    """The tasks of a cluster, as watchers see them.

    Every task is called at once and has `seconds` to answer. No task is waited for longer than that
    and none fails the call; its report says how it answers. Without tasks, all are meant.

    Raises:
      InvalidArgumentError: if the cluster has no such task.
    """

    @remote(needs=AccessRole.READ, doing="inspecting the cluster")
    async def inspect(
        self, request: StatusRequest, tasks: Sequence[Task], seconds: float, deadline: Deadline
    ) -> Sequence[TaskReport]:
        """Reports the state and the activity of tasks; the task of this master first."""

    @remote(needs=AccessRole.READ, doing="listing coordinators")
    async def list_coordinators(
        self, tasks: Sequence[Task], seconds: float, deadline: Deadline
    ) -> Sequence[TaskReport]:
        """Reports the coordinators of the clients of tasks: each packed as a `CoordinatorList`."""

    @remote(needs=AccessRole.OPERATE, doing="reading what recorded steps have done")
    async def read_journals(
        self, positions: Sequence[JournalPosition], seconds: float, deadline: Deadline
    ) -> Sequence[TaskJournal]:
        """Reads on in the journals of tasks, from the start where a server is another incarnation.

        Tasks that do not answer are left out.
        """

    @remote(needs=AccessRole.OPERATE, doing="stopping tasks")
    async def stop(
        self, tasks: Sequence[Task], seconds: float, deadline: Deadline
    ) -> Sequence[TaskReport]:
        """Stops the servers of tasks; that of this master last."""


class WorkerService(Protocol):
    """A worker, as the masters of the cluster call it. Every error is an `OpError`."""

    @property
    def saves(self) -> StateSaves:
        """The saves and restores of the caller."""

    @property
    def moves(self) -> StateMoves:
        """The moves of the caller."""

    @property
    def effects(self) -> TaskEffects:
        """The steps of the caller that are applied once."""

    @property
    def claims(self) -> ClaimedRuns:
        """The runs under claims."""

    @property
    def members(self) -> TaskMembers:
        """The list of members that the task knows."""

    async def register(
        self,
        plans: Sequence[Plan],
        artifacts: Artifacts,
        is_restartable: bool = False,
        owner: StepOwner = UNKNOWN_OWNER,
    ) -> Registered:
        """Compiles and links plans for devices of this task, and keeps them ready to run.

        Returns:
          A handle; or the digests of artifacts that are neither cached there nor sent, in which
          case nothing was registered.

        Raises:
          InvalidArgumentError: if a plan is for a device of another task or malformed, or an
            artifact does not have its digest.
          FencedError: if there was a later claim, now or whenever they are run.
          MovedError: if state that they use has moved.
          ResourceExhaustedError: if the session or user of `owner` would exceed a quota, or a
            program the memory of its device.
        """

    async def run_plans(
        self,
        step: int,
        handle: int,
        feeds: Sequence[Array],
        client: Client | None = None,
        records: list[TaskRecord] | None = None,
        staging: Staging | None = None,
        piggybacked: Piggybacked | None = None,
    ) -> Sequence[Array]:
        """Runs registered plans; returns the fetched values in the order of their indices.

        `client` is given only on the task that the client is connected to. If there are `records`,
        the step is traced, and what this task notes is added to them. With `staging`, what the
        plans write is applied once: when `TaskEffects.decide` says so, or at once if this task is
        alone. What may leave with the reply is added to `piggybacked` instead of being sent.

        Raises:
          ConflictError: if an older step has what it waits for; nothing was done.
          AbortedError: if a later attempt of the step has taken over.
          UnimplementedError: if the plans do more than to write variables, and are to be staged.
        """

    def begin_plans(
        self,
        step: int,
        handle: int,
        feeds: Sequence[Array],
        staging: Staging | None = None,
        n_steps: int = 1,
    ) -> Started[Sequence[Array]] | None:
        """Begins `run_plans` in one plain function, possibly outside of asyncio tasks.

        Plans that are repeatable (`task/execution/repeated.py`) can run several times at once.

        Returns:
          None if the plans wait for other steps or take long; nothing was done then.
        """

    def check_devices(self, handle: int) -> None:
        """Raises UnavailableError if registered plans are for a device that is stuck."""

    @remote(needs=AccessRole.CLUSTER)
    async def list_coordinators(self) -> Array:
        """Returns the coordinators of the clients of the task, packed as u8[n]."""

    @remote(needs=AccessRole.CLUSTER)
    async def inspect(self, request: StatusRequest) -> Array:
        """Reports the state and the activity of the task: a packed `TaskStatus`, u8[n]."""

    @remote(needs=AccessRole.CLUSTER)
    async def read_journal(self, position: int) -> JournalPart:
        """Returns what recorded steps have done on the task, from a position on."""

    @remote(needs=AccessRole.CLUSTER)
    async def stop(self) -> None:
        """Stops the server of the task shortly after the reply to this call."""

    @remote(needs=AccessRole.CLUSTER)
    async def reset(self, containers: Sequence[str]) -> None:
        """Frees containers of this task."""

    def release(self, handle: int) -> None:
        """Forgets registered plans."""


class WorkerSession(WorkerService, Protocol):
    """A worker service for one caller."""

    def deliver(self, step: int, edge: int, tensor: Array | None) -> bool:
        """Receives a value or signal (None) that another task sends under an edge of a step.

        Returns:
          Whether the caller has sent too much for steps that have not begun here.
        """

    async def make_room(self) -> None:
        """Waits until the caller may send more for steps that have not begun here."""

    def needs_task(self, handle: int) -> bool:
        """Whether plans must run in an asyncio task from the start, for a later claim to cancel."""

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

    @property
    def state(self) -> ClusterState:
        """The operations of the session on the state of the cluster."""

    @property
    def members(self) -> ClusterMembers:
        """The members of the cluster."""

    @remote(needs=AccessRole.READ, doing="listing the devices of {tasks}")
    async def list_devices(
        self, tasks: Sequence[Task], connect_timeout: float, only_up: bool, deadline: Deadline
    ) -> Sequence[DeviceRecord]:
        """Lists the devices of tasks; `only_up` omits tasks that do not respond."""

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
        """Runs a registered step; one with callbacks requires `client`.

        If there are `records`, it is traced, and what each task notes is added to them. With an
        effect, it is applied once. With a number, it is recorded (`jflow.state.journal`).
        """

    @remote(needs=AccessRole.READ, doing="running {n_steps} steps")
    async def run_steps(
        self,
        handle: int,
        n_steps: int,
        is_stacked: bool,
        feeds: Sequence[Array],
        deadline: Deadline,
    ) -> tuple[int, Sequence[Array]]:
        """Runs a registered step several times with the same feeds; see `RepeatedRun`.

        Returns:
          How often it has run, and its results: of the last run, or stacked. It is less than
          `n_steps` if the step has to be registered again.
        """

    def begin_step(
        self,
        handle: int,
        deadline: Deadline,
        feeds: Sequence[Array],
        effect: Effect | None = None,
        records: list[TaskRecord] | None = None,
        step_id: int = 0,
    ) -> Started[Sequence[Array]] | None:
        """Begins `run_step` in a plain function, possibly outside of asyncio tasks.

        Returns:
          None if it cannot be begun so; nothing was done then.
        """

    @remote(needs=AccessRole.USE, doing="telling the state of a coordinator")
    async def publish_coordinator(self, packed: bytes, deadline: Deadline) -> None:
        """Takes the status of the client's coordinator, a packed `CoordinatorStatus`; b"" for none.

        Raises:
          InvalidArgumentError: if it is malformed.
        """

    @remote(needs=AccessRole.READ, doing="waiting for steps to trace")
    async def sample_steps(self, n_steps: int, seconds: float, deadline: Deadline) -> Array:
        """Traces the next steps of all clients of this master for an observer.

        It returns when `n_steps` have ended, or after as long as `seconds` those that there are: a
        packed `StepSamples` as u8[n].

        Raises:
          InvalidArgumentError: if it is asked for too many steps, or for none.
        """

    @remote(needs=AccessRole.READ, doing="finding what the session waits for")
    async def find_waits(self) -> SessionWaits:
        """Reports what the calls of this session wait for, from tasks that reply within 1 s."""

    def watch_tasks(self, handle: int) -> Awaitable[None] | None:
        """Waits until a task that a registered step needs is lost; None if it needs no other one.

        It goes on for ever if none is. It raises what the step would raise if it began then.
        """

    def reply_size(self, handle: int) -> ReplySize | None:
        """Returns the size of a step's last reply; None if it may wait for others or is unknown."""

    def release(self, handle: int) -> None:
        """Forgets a registered step, here and on the tasks that take part."""

    @remote(needs=AccessRole.OPERATE, doing="resetting containers")
    async def reset(
        self,
        containers: Sequence[str],
        connect_timeout: float,
        deadline: Deadline,
        tasks: Sequence[Task] = (),
    ) -> None:
        """Frees containers on the given tasks, or on all, and closes this server's sessions.

        Raises:
          InvalidArgumentError: if the cluster has no such task.
        """

    def limit(self, rights: Rights) -> None:
        """Takes the rights that its client has from now on, which are not of a lower role.

        It ends if it has registered a step that they do not allow.
        """

    def close(self) -> None:
        """Releases what the session registered, after its running calls were cancelled."""


class ServerRoles(Protocol):
    """The roles of a server: a master for clients, a worker for other servers."""

    def info(self) -> ServerInfo:
        """Returns the current server info."""

    def open_master_session(self, rights: Rights) -> MasterSession:
        """Opens a session for a client with these rights."""

    def open_worker_session(self, caller: Task | None) -> WorkerSession:
        """Opens a session for another server.

        Args:
          caller: the task of that server; None if it has none.
        """

"""Records of the status of a task: what it is, holds and does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, ClassVar, Protocol

import msgspec
import numpy as np

from jflow.base.cluster import Task
from jflow.base.packing import Finite, Limits, Meta, Record, Size
from jflow.base.values import Array
from jflow.base.versions import OLDEST_VERSION, VERSION, Since
from jflow.errors import InvalidArgumentError

MAX_ITEMS = 500
"""The most items of a kind in one reply, which occupies the event loop of the server."""

MAX_NAME = 300
"""The most characters of a name, or of what a step waits for, in a reply."""

_Incarnation = Annotated[int, Meta(ge=1)]


def bounded_name(name: str) -> str:
    """Cuts a name to `MAX_NAME` characters and appends the number of those left out."""
    if len(name) <= MAX_NAME:
        return name
    return f"{name[:MAX_NAME]}… ({len(name) - MAX_NAME} more characters)"


class ContainerStatus(Record, frozen=True):
    """The status of a container of a task; the default container is "".

    Attributes:
      n_variables, n_bytes: its variables, and their memory in bytes.
      n_resources: its queues, readers and the like.
    """

    name: str
    n_variables: Size = 0
    n_bytes: Size = 0
    n_resources: Size = 0


class DeviceStatus(Record, frozen=True):
    """The status of a device of a task.

    Attributes:
      memory_bytes: the memory that it can use, in bytes; 0 if that is not known.
      n_abandoned: how many steps have ended while it ran a program of them, which still runs.
      abandoned_s: since the first of them has ended, in seconds; None if there is none.
      is_stuck: whether it takes no steps because of them.
    """

    name: str
    type: str
    memory_bytes: Size = 0
    n_abandoned: Annotated[Size, Since(12)] = 0
    abandoned_s: Annotated[Finite | None, Since(12)] = None
    is_stuck: Annotated[bool, Since(12)] = False


class VariableStatus(Record, frozen=True):
    """The status of a variable of a task.

    Attributes:
      n_bytes: its memory.
      sharding: how it is sharded over a mesh, such as "model,*"; "" if it is on one device.
      varying: the dimensions whose sizes assignments may change.
    """

    container: str
    name: str
    device: str
    dtype: str
    shape: tuple[Size, ...]
    n_bytes: Size
    sharding: str = ""
    varying: tuple[Size, ...] = ()


class QueueStatus(Record, frozen=True):
    """The status of a queue of a task.

    Attributes:
      kind: its class, such as "FIFOQueue".
      size, n_bytes: its elements, and their memory in bytes.
      capacity: the most elements; negative for no limit.
      capacity_bytes: the most memory in bytes; None for no limit.
      n_enqueues, n_dequeues: how many of them wait.
      owner: the session that it belongs to; "" if it is shared.
    """

    container: str
    name: str
    device: str
    kind: str
    size: Size
    n_bytes: Size
    capacity: int
    capacity_bytes: Size | None
    n_enqueues: Size
    n_dequeues: Size
    is_closed: bool
    owner: str = ""


class SessionStatus(Record, frozen=True):
    """The status of a client's session on the master of a task.

    Attributes:
      number: counts the sessions of this life of the task.
      age_s: since it was opened, in seconds.
      n_steps: how many steps it has registered.
      n_waiting: how many of its calls have begun and wait for something.
      claim: the name and epoch that it works under; "" if it has claimed nothing.
      restarted: tasks that it used and that have restarted since: it fails on them.
      user: whose token its client has; "" if that of the cluster.
    """

    number: Size
    age_s: Finite
    n_steps: Size
    n_waiting: Size
    claim: str = ""
    restarted: tuple[str, ...] = ()
    user: Annotated[str, Since(12)] = ""


class UsageStatus(Record, frozen=True):
    """What a task keeps of one container for one session.

    Attributes:
      container: "" if that is the default one, or for steps, which are in no container.
      master, session: the task of the session's master and the number there; "" and 0 of state that
        no step has made: it was restored or moved.
      user: whose token its client has; "" if that of the cluster.
      n_bytes: of variables, queues and value tables.
      n_steps, n_slots, n_programs: of registered steps.
    """

    container: str
    master: str
    session: Size
    user: str
    n_bytes: Size
    n_steps: Size
    n_slots: Size
    n_programs: Size


class StepStatus(Record, frozen=True):
    """The status of a step that is active on a task, or that was abandoned there.

    A step is abandoned if it was cancelled or has failed while a device ran a program of it, which
    cannot be interrupted.

    Attributes:
      step: its number in the cluster, in hexadecimal.
      age_s: since it began on this task, in seconds.
      devices: the devices of the task that take part.
      waiting_for: what it waits for; empty if it computes.
      master: the task whose client it is of.
      claim: the name that the client had claimed; "" if it had claimed nothing.
      abandoned_s: since it was abandoned, in seconds; None if it was not.
      session: the number of the client's session on the master; 0 if that is not known.
      user: whose token the client has; "" if that of the cluster.
    """

    step: str
    age_s: Finite
    devices: tuple[str, ...] = ()
    waiting_for: tuple[str, ...] = ()
    master: str = ""
    claim: str = ""
    abandoned_s: Finite | None = msgspec.field(default=None, name="orphaned_s")
    session: Annotated[Size, Since(12)] = 0
    user: Annotated[str, Since(12)] = ""


class WaitStatus(Record, frozen=True):
    """The status of a step on a task: what it waits for, or that it computes.

    Attributes:
      step: its number in the cluster, in hexadecimal.
      plans: the handle under which the task has its plans.
      age_s: since the step began on this task, in seconds.
      cause: what it waits for, such as "to dequeue an element from FIFOQueue 'jobs'"; "" if it
        computes.
      op: the operation that waits, "" if that is not known.
      device: where what it waits for is; "" if that is not known.
      edge: the number of the value that it waits for; None if it waits for no value.
      abandoned_s: since the step was abandoned, in seconds; None if it was not. See `StepStatus`.
    """

    step: str
    plans: Size
    age_s: Finite
    cause: str = ""
    op: str = ""
    device: str = ""
    edge: Size | None = None
    abandoned_s: Finite | None = msgspec.field(default=None, name="orphaned_s")


class WorkerClosures(Record, frozen=True):
    """A worker of a coordinator: how many attempts it runs, and whether it is lost."""

    task: str
    n_running: Size
    is_lost: bool


class CoordinatorStatus(Record, frozen=True):
    """The status of a coordinator, which lives in a client, as published to a master.

    Attributes:
      name: what it has claimed; "" if it has claimed nothing.
      n_waiting, n_running: closures that wait, and attempts that run.
      n_done, n_failed, n_cancelled: how many closures have ended, and how.
      n_retried: how often a closure was run again because its worker was lost.
      workers: its workers.
    """

    what = "status of a coordinator"

    name: str
    n_waiting: Size
    n_running: Size
    n_done: Size
    n_failed: Size
    n_cancelled: Size
    n_retried: Size
    workers: tuple[WorkerClosures, ...]


class CoordinatorList(Record, frozen=True):
    """The coordinators whose clients have sessions on a task."""

    what = "list of coordinators"
    limits: ClassVar[Limits] = Limits(n_bytes=1 << 22)

    coordinators: tuple[CoordinatorStatus, ...]


class ThreadStatus(Record, frozen=True):
    """The stack of a thread in the process of a task.

    Attributes:
      frames: where it is, from the outermost call to the innermost: "file:line function".
    """

    name: str
    frames: tuple[str, ...]


KINDS: Mapping[str, type[Record]] = {
    "containers": ContainerStatus,
    "devices": DeviceStatus,
    "queues": QueueStatus,
    "sessions": SessionStatus,
    "steps": StepStatus,
    "threads": ThreadStatus,
    "usage": UsageStatus,
    "variables": VariableStatus,
    "pending": WaitStatus,
}
"""What can be listed: the record of an item by the name of its kind, a field of `TaskStatus`."""


class StatusRequest(Record, frozen=True):
    """A request for a task's status: which items to list.

    Attributes:
      kinds: some of `KINDS`.
      first: the first item of each, from 0; between two requests the items may change.
      limit: the most items of each, up to `MAX_ITEMS`.
      version: the version of the protocol in which the status is wanted.

    Raises:
      InvalidArgumentError: if there is no such kind, or one is given twice.
    """

    what = "request for the status of a task"

    kinds: tuple[str, ...] = ("devices", "sessions", "steps")
    first: Size = 0
    limit: Annotated[int, Meta(ge=1, le=MAX_ITEMS)] = MAX_ITEMS
    version: Annotated[Size, Since(12, absent=OLDEST_VERSION)] = VERSION

    def __post_init__(self) -> None:
        if unknown_kinds := [kind for kind in self.kinds if kind not in KINDS]:
            raise InvalidArgumentError(
                f"a task cannot list {unknown_kinds[0]!r}; expected some of {', '.join(KINDS)}"
            )
        if repeated_kinds := [kind for kind in KINDS if self.kinds.count(kind) > 1]:
            # Each would be listed as often, on the event loop of the task.
            raise InvalidArgumentError(f"a task cannot list {repeated_kinds[0]!r} more than once")


class TaskStatus(Record, frozen=True):
    """The status of a task. Lists are empty unless they were requested.

    Attributes:
      task, address: its name, and where it listens.
      incarnation: identifies this life of the task.
      version, pid: of its process.
      uptime_s: since its server started, in seconds.
      memory_bytes, cpu_s: what the process has and has used, with all else that runs in it.
      n_begun: how many steps have begun on the task.
      n_compiled: how many programs it has compiled.
      totals: how many items there are of each kind that was requested.
      log, log_inode: the path and the number of the file that its standard error goes to; "" and 0
        if that is no file.
    """

    what = "status of a task"
    limits: ClassVar[Limits] = Limits(n_bytes=1 << 25, n_items=1 << 20)

    task: str
    address: str
    incarnation: _Incarnation
    version: str
    pid: Size
    uptime_s: Finite
    memory_bytes: Size
    cpu_s: Finite
    n_begun: Size
    n_compiled: Size
    totals: Mapping[str, Size] = msgspec.field(default_factory=dict)
    containers: tuple[ContainerStatus, ...] = ()
    devices: tuple[DeviceStatus, ...] = ()
    queues: tuple[QueueStatus, ...] = ()
    sessions: tuple[SessionStatus, ...] = ()
    steps: tuple[StepStatus, ...] = ()
    threads: tuple[ThreadStatus, ...] = ()
    usage: Annotated[tuple[UsageStatus, ...], Since(12)] = ()
    variables: tuple[VariableStatus, ...] = ()
    pending: tuple[WaitStatus, ...] = ()
    log: str = ""
    log_inode: Size = 0


class SessionWait(Record, frozen=True):
    """What one call of a session waits for.

    Attributes:
      handle: of the step that waits; 0 if it is another call.
      task: the task on which it waits, or for which.
      wait: what for.
    """

    handle: Size
    task: str
    wait: WaitStatus


class SessionWaits(Record, frozen=True):
    """What the calls of a session wait for, without steps that are computing on some task."""

    what = "list of what a session waits for"
    limits: ClassVar[Limits] = Limits(n_bytes=1 << 25, n_items=1 << 20)

    found: tuple[SessionWait, ...]


class WatchedTask(Protocol):
    """A task that can be watched. Its methods must be called on the event loop."""

    def inspect(self, request: StatusRequest) -> TaskStatus:
        """Returns the status of the task."""

    def coordinators(self) -> CoordinatorList:
        """Returns the coordinators of the clients of this task."""

    def stop(self) -> None:
        """Stops the server soon, after the reply to this call."""


class TaskState(Enum):
    """How a task responds to a master."""

    UP = "up"
    SILENT = "silent"
    """It does not reply in time: it is stopped, cut off or overloaded."""
    DOWN = "down"
    """Nothing listens at its address."""
    REFUSED = "refused"
    """The server at its address is not this task, or refuses the call."""


@dataclass(frozen=True)
class TaskReport:
    """A master's report on a task.

    Attributes:
      task, address: the task, and its address in the cluster.
      state: how it answers.
      reason: why it is not up; "" if it is.
      packed: its packed `TaskStatus`, u8[n]; empty unless it is up.
    """

    task: Task
    address: str
    state: TaskState
    reason: str = ""
    packed: Array = field(default_factory=lambda: np.zeros(0, np.uint8))

    @property
    def status(self) -> TaskStatus | None:
        """The task's own status; None unless the task is up."""
        return TaskStatus.from_bytes(self.packed.tobytes()) if self.state is TaskState.UP else None

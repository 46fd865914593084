"""The interfaces of backends and executables, by which sessions and connections run steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import jax

from jflow.base.cluster import MESH, Device, DeviceSpec, Task, mesh_of_all
from jflow.base.deadline import Deadline
from jflow.base.options import ConfigProto
from jflow.base.values import Array
from jflow.client.runtime.restarts import Restarts
from jflow.compiler.graph import VariableRef
from jflow.compiler.pipeline import CompiledStep
from jflow.compiler.placement import Inventory
from jflow.plan import Plan
from jflow.plan.trace.measured import StepNames
from jflow.plan.trace.record import TaskRecord
from jflow.plan.xla.compile import CompiledProgram
from jflow.state.effects import Effect
from jflow.state.members import MemberList
from jflow.state.moves import StateId
from jflow.state.saves import StateItems
from jflow.state.watch import ContainerStatus, CoordinatorStatus

R = TypeVar("R")


class Executable(Protocol):
    """A compiled and registered step; each run takes the fed arrays and a deadline."""

    @property
    def names(self) -> StepNames:
        """The names of its instructions in traces."""

    @property
    def plans(self) -> Sequence[Plan]:
        """The plans, one for each device that takes part."""

    def prepare(self, deadline: Deadline) -> None:
        """Registers the step if it is not registered yet, as the first run would."""

    def run(
        self,
        feeds: Sequence[Array],
        deadline: Deadline,
        *,
        effect: Effect | None = None,
        records: list[TaskRecord] | None = None,
    ) -> list[Array]:
        """Runs the step and returns the fetched values as NumPy arrays, which the caller owns.

        With an effect, what the step writes is applied once, on all tasks or on none, however often
        the step is attempted and wherever each attempt runs (docs/failures.md).

        Args:
          feeds: the fed values.
          deadline: the deadline of the call.
          effect: the attempt, of a step that is to be applied once.
          records: if given, the step is traced, and once it has succeeded the record of each task
            is appended.

        Raises:
          AbortedError: of an attempt, if a later one has taken over.
          DataLossError: if an earlier attempt was applied, but its results were not kept.
          UnimplementedError: if it has an effect, and does more than to write variables.
        """

    def run_steps(
        self, feeds: Sequence[Array], deadline: Deadline, n_steps: int, is_stacked: bool
    ) -> tuple[int, list[Array]]:
        """Runs the step several times with the same fed values, without returning in between.

        Args:
          feeds, deadline: as for `run`; the deadline is that of all runs.
          n_steps: how often.
          is_stacked: whether each result has a first axis for the runs, or is that of the last.

        Returns:
          How often it has run, which is less if it has to be registered again, and the results.

        Raises:
          OpError: as `run`; the message has the number of the run, and those before were applied.
        """

    def start(
        self,
        feeds: Sequence[Array],
        deadline: Deadline,
        *,
        effect: Effect | None = None,
        records: list[TaskRecord] | None = None,
    ) -> Future[list[Array]]:
        """Like `run`, without blocking; cancelling the future cancels the step.

        Raises:
          UnimplementedError: if the step calls Python and runs on a cluster.
        """

    def compute(
        self, feeds: Sequence[Any], deadline: Deadline, *, records: list[TaskRecord] | None = None
    ) -> list[jax.Array]:
        """Runs the step with NumPy or JAX arrays and returns JAX arrays."""

    def single_program(self, n_feeds: int) -> CompiledProgram | None:
        """Returns the program of a step that only runs one program in this process; None otherwise.

        It takes that many fed values in order, returns the fetched ones, and raises TypeError or
        ValueError if it cannot take a value as it is; None if a step does more.
        """


@runtime_checkable
class Stoppable(Protocol):
    """The future of a step on a cluster, as `Executable.start` returns it."""

    def stop(self) -> None:
        """Cancels the step but not the future, which completes when the step has ended."""


def stop_step(started: Future[list[Array]]) -> None:
    """Cancels a started step; its future completes when the step has ended."""
    if isinstance(started, Stoppable):
        started.stop()
    else:
        started.cancel()


@dataclass(frozen=True)
class DeviceInfo:
    """A device, as returned by `Session.list_devices`.

    Attributes:
      name: its full name, such as "/job:ps/task:0/device:CPU:0".
      device_type: such as "CPU" or "GPU"; "MESH" for the mesh of all devices of a task.
      incarnation: a random number that identifies the life of its process; 0 in this process.
      transport: what carries messages to its task: "grpc", "unix", "tcp", or "inproc" in this
        process. It is the transport of the session's server for tasks other than that server, and
        "" without a server.
      memory_limit_bytes: the capacity of its memory; 0 if it is not known. An accelerator's is that
        of JAX's allocator. CPU devices of one process share what the operating system lets it use.
    """

    name: str
    device_type: str
    incarnation: int
    transport: str = ""
    memory_limit_bytes: int = 0


def with_meshes(infos: Iterable[DeviceInfo]) -> list[DeviceInfo]:
    """Returns devices, and after those of a task the mesh of them, which has their memory."""
    by_task: dict[Task, dict[Device, DeviceInfo]] = {}
    for info in infos:
        device = Device.parse(info.name)
        by_task.setdefault(device.task, {})[device] = info
    listed: list[DeviceInfo] = []
    for devices in by_task.values():
        listed.extend(devices.values())
        mesh = mesh_of_all([*devices])
        if mesh is not None:
            members = [devices[one] for one in mesh.members([*devices])]
            n_bytes = [one.memory_limit_bytes for one in members]
            limit = sum(n_bytes) if all(n_bytes) else 0
            whole = replace(members[0], name=str(mesh), device_type=MESH, memory_limit_bytes=limit)
            listed.append(whole)
    return listed


class Backend(Protocol):
    """Runs steps, in this process or on a cluster.

    Attributes:
      keeps_weak_types: whether `Executable.compute` returns arrays with JAX's weak types.
      has_one_device: whether `default_device` is always None.
      moves_private: whether state that is not shared can move.
      tasks_leave: whether the tasks on which steps are placed may leave.
      reconnects: whether a call connects again when the connection was lost.
      restarts: what it does when tasks have restarted.
    """

    keeps_weak_types: bool
    has_one_device: bool
    moves_private: bool
    tasks_leave: bool
    reconnects: bool
    restarts: Restarts

    @property
    def is_lost(self) -> bool:
        """Whether the connection to the server was made and has ended."""

    @property
    def owner(self) -> str:
        """A name unique to this session, which owns the resources that are not shared."""

    def inventory(self, tasks: Collection[Task], deadline: Deadline) -> Inventory:
        """Returns all tasks, and the devices of `tasks`; blocks until these have responded.

        Raises:
          UnavailableError, DeadlineExceededError: if one of `tasks` does not respond.
        """

    def members(self, deadline: Deadline) -> MemberList | None:
        """Returns the members of the cluster; None in this process."""

    def forget_members(self) -> None:
        """Makes the next inventory ask for the tasks of the cluster, which have changed."""

    def register(self, compiled: CompiledStep) -> Executable:
        """Makes a compiled step ready to run.

        On a cluster, the first run registers it with the master.
        """

    def complete_options(self, config: ConfigProto, deadline: Deadline) -> ConfigProto:
        """Returns the session's options, completed by a server's defaults; connects to it."""

    def incarnation(self, deadline: Deadline) -> int:
        """Returns a random number that identifies the life of the server; 0 in this process."""

    def call_state(
        self, method: Callable[..., Coroutine[Any, Any, R]], *args: Any, deadline: Deadline
    ) -> R:
        """Calls a remote method of the session's `jflow.state.core.ClusterState`.

        Args:
          method: the method.
          args: its arguments without the connect timeout and the deadline.
          deadline: the deadline of the call.
        """

    def claim(self, name: str, epoch: int, deadline: Deadline) -> int:
        """Acquires the fencing epoch of a name, under which all later calls are made.

        Args:
          name: the name.
          epoch: of a claim that another backend of this program has made; 0 for a new one.
          deadline: the deadline of the call.

        Returns:
          The epoch.

        Raises:
          FencedError: if there was a later claim; likewise every later call.
        """

    def move_state(
        self, states: Sequence[StateId], target: str, hold_s: float, deadline: Deadline
    ) -> None:
        """Moves state from one device to another.

        Args:
          states: what moves together.
          target: the full name of the device that it moves to.
          hold_s: the longest time that steps wait for the move, in seconds.
          deadline: the deadline of the call.

        Raises:
          MovedError: if some of it is elsewhere.
          OpError: as `jflow.Session.replace`.
        """

    def to_tasks(self, prefix: str, items: StateItems, deadline: Deadline) -> tuple[str, bytes]:
        """Returns a checkpoint's path and what it has, as the tasks with the state need them.

        Args:
          prefix: the path of the checkpoint: relative to the working directory of this process, or
            absolute on the machines that have the state.
          items: what is saved or restored.
          deadline: the deadline of the call.

        Raises:
          InvalidArgumentError: if the path is relative, and a task does not see it.
        """

    def was_restored(self, items: StateItems, deadline: Deadline) -> None:
        """Reads state that was restored, if the session is recorded."""

    def peek(self, ref: VariableRef) -> jax.Array | None:
        """Returns the value of a variable in this process, None if it has none; never blocks."""

    def default_device(self, values: Iterable[Any]) -> DeviceSpec | None:
        """Returns the device that a function of these values requests, as it would under `jax.jit`.

        Returns None for the first device, and for devices of other processes.
        """

    def list_devices(self, deadline: Deadline) -> list[DeviceInfo]:
        """Returns the devices of all tasks that are up, the master's own first."""

    def containers(self, deadline: Deadline) -> Mapping[Task, Sequence[ContainerStatus]]:
        """Returns the containers of all tasks that are up, with their memory."""

    def sharding_of(self, ref: VariableRef, deadline: Deadline) -> str:
        """Returns how a variable is sharded over its mesh, as text; "" if it has no value."""

    def page(self) -> str:
        """Returns the URL of the cluster's live page, if this user serves one here; "" for none."""

    def publish_coordinator(self, status: CoordinatorStatus | None, deadline: Deadline) -> None:
        """Tells the master the status of this program's coordinator; None if it has ended."""

    def close(self) -> None:
        """Cancels running steps and releases all resources."""

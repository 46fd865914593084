"""`TaskCore` and `ClusterView`: what a task's services, and its master, know of the cluster."""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from jflow.base.cluster import Task
from jflow.base.deadline import FOREVER, Deadline
from jflow.base.drivers import CoreDriver, Event
from jflow.errors import AbortedError, InvalidArgumentError, OpError
from jflow.plan.xla.hardware import DeviceOrMesh
from jflow.state.fencing import Fences
from jflow.state.moves import Gate, StateId
from jflow.state.resources import Attempt, Containers
from jflow.state.resources.kernel import Wanted

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")

RECONNECT_TIMEOUT_S = 2.0
"""How long to try to reach a task that was lost, in seconds."""


class TaskInfo(Protocol):
    """A task's description of itself."""

    @property
    def task(self) -> Task:
        """The task."""

    @property
    def incarnation(self) -> int:
        """The incarnation of the task."""

    @property
    def tasks(self) -> Sequence[Task]:
        """The tasks of the cluster that the task knows."""

    @property
    def device_names(self) -> Collection[str]:
        """The full names of the task's devices."""


class TaskCalls(Protocol):
    """The proxy for calls to the services of a task, another one or the caller's own."""

    async def connect(self, connect_timeout: float, deadline: Deadline = FOREVER) -> TaskInfo:
        """Connects unless connected. Raises UnavailableError if the task does not reply in time."""

    async def call(
        self,
        method: Callable[Concatenate[S, P], Awaitable[R]],
        incarnation: int,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Calls a remote method, such as `StateSaves.take`, in one incarnation of the task."""


class TasksOfCluster(Protocol):
    """The tasks of a cluster, by name."""

    def __getitem__(self, task: Task) -> TaskCalls:
        """Returns the proxy of a task."""


class ParkedSteps(Protocol):
    """Steps that wait for queues, which a move may end and run again."""

    def leave(self, states: Collection[StateId]) -> None:
        """Ends the steps that wait for state, and those that begin to, until `stay`."""

    def stay(self, states: Collection[StateId]) -> None:
        """Lets steps wait for state again, after `leave`."""


def parsed_task(name: str) -> Task:
    """Returns the task of a name. Raises InvalidArgumentError if it is malformed."""
    try:
        return Task.parse(name)
    except ValueError as error:
        raise InvalidArgumentError(str(error)) from None


def new_name(driver: CoreDriver) -> str:
    """Returns a random name for a save or move: 16 hexadecimal digits."""
    return f"{driver.random_bits(64):016x}"


@dataclass(frozen=True)
class TaskCore:
    """The parts of one task that its services share.

    Attributes:
      task: the task.
      containers: its state.
      driver: runs its services.
      devices: its devices by their full names.
      parked: its steps that a move may end.
      tasks: the tasks of its cluster.
    """

    task: Task
    containers: Containers
    driver: CoreDriver
    devices: Mapping[str, DeviceOrMesh]
    parked: ParkedSteps
    tasks: TasksOfCluster

    async def waited(self, wanted: Wanted) -> None:
        """Waits until an attempt has completed; cancels the attempt if the wait is cancelled."""
        cell, attempt = wanted
        done = self.driver.event()

        def wake(_: Attempt) -> None:
            done.set_threadsafe()

        if not cell.submit(attempt, wake):
            try:
                await done.wait()
            except BaseException:
                cell.cancel(attempt, AbortedError("the call was cancelled"))
                raise
        attempt.result()


async def call_task(
    tasks: TasksOfCluster,
    task: Task,
    method: Callable[Concatenate[S, P], Awaitable[R]],
    connect_timeout: float,
    *args: P.args,
    **kwargs: P.kwargs,
) -> R:
    """Connects to a task and calls a remote method in the incarnation that replies."""
    proxy = tasks[task]
    info = await proxy.connect(connect_timeout)
    return await proxy.call(method, info.incarnation, *args, **kwargs)


class ConnectedTasks:
    """Calls tasks in the incarnations to which one operation has connected.

    Args:
      tasks: the tasks of the cluster.
    """

    def __init__(self, tasks: TasksOfCluster) -> None:
        self._tasks = tasks
        self._incarnations: dict[Task, int] = {}

    async def connect(self, task: Task, patience: float, deadline: Deadline = FOREVER) -> TaskInfo:
        """Connects to a task, waiting up to `patience` seconds for a reply."""
        info = await self._tasks[task].connect(patience, deadline)
        self._incarnations[task] = info.incarnation
        return info

    async def call(
        self,
        task: Task,
        method: Callable[Concatenate[S, P], Awaitable[R]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Calls a remote method of a task and adds the task to errors."""
        try:
            return await self._tasks[task].call(method, self._incarnations[task], *args, **kwargs)
        except OpError as error:
            error.with_context(task=str(task))
            raise


def is_of(service: Any, method: Callable[..., Any]) -> bool:
    """Whether a method is defined by the class of a service."""
    return getattr(type(service), method.__name__, None) is method


async def every(driver: CoreDriver, coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Runs all coroutines to completion, even if the caller is cancelled.

    Raises:
      BaseException: the first error, once all have ended.
    """
    errors: list[BaseException] = []

    async def run(coroutine: Coroutine[Any, Any, None], ended: Event) -> None:
        try:
            await coroutine
        except (Exception, driver.Cancelled) as error:
            errors.append(error)
        finally:
            ended.set()

    started = [(coroutine, driver.event()) for coroutine in coroutines]
    for coroutine, ended in started:
        driver.start(run(coroutine, ended))
    for _, ended in started:
        await ended.wait()
    if errors:
        raise errors[0]


@asynccontextmanager
async def within(
    servers: ClusterView[Any, Any], deadline: Deadline, doing: str
) -> AsyncIterator[None]:
    """Context manager of a call that is cancelled at a deadline.

    Raises:
      DeadlineExceededError: if the deadline passes.
    """
    try:
        async with servers.driver.limit(deadline.remaining()):
            yield
    except TimeoutError:
        if deadline.remaining() != 0:
            raise
        raise deadline.error(doing, str(servers.info().task)) from None


I_co = TypeVar("I_co", bound=TaskInfo, covariant=True)
T_co = TypeVar("T_co", bound=TasksOfCluster, covariant=True)


@dataclass(frozen=True)
class ClusterView(Generic[I_co, T_co]):
    """A master's view of the cluster.

    Attributes:
      info: gives what its own task says of itself at present.
      tasks: the tasks of the cluster, its own among them.
      driver: runs the master.
      gate: what steps wait at while the state that they use is moved.
      fences: the claims that its own task has heard of.
      liveness_s: gives after how many seconds without a sign of life a task counts as lost.
    """

    info: Callable[[], I_co]
    tasks: T_co
    driver: CoreDriver
    gate: Gate
    fences: Fences
    liveness_s: Callable[[], float]

"""`TaskMembers`: a task's part in the list of members; `ClusterMembers`: what a client may ask for.

The leader writes each change to its file before any task hears of it, and then tells all. It goes
on telling those that did not answer, and those that have restarted, as long as it lives. While it
is away nothing changes, and all else goes on. A task that receives an older list replies with its
own.

A leader does not leave: it first hands over, and stays until the next one has the list. If it ends
before, it tells the next one when it comes back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Protocol

from jflow.base.cluster import Task
from jflow.base.deadline import Deadline
from jflow.base.drivers import CoreDriver, Job
from jflow.base.drivers.driver import Mutex
from jflow.base.roles import AccessRole
from jflow.errors import (
    AbortedError,
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    OpError,
    UnavailableError,
)
from jflow.state.core.mover import StateMover
from jflow.state.core.remote import remote
from jflow.state.core.task import (
    ClusterView,
    TaskCalls,
    TasksOfCluster,
    call_task,
    parsed_task,
    within,
)
from jflow.state.members import MemberList
from jflow.state.moves import MovedError, StateId

TELL_S = 2.0
"""How long the leader waits for one task that it tells of a change, in seconds."""

PAUSE_S = 1.0
"""The time between two rounds in which the leader tells those that do not know, in seconds."""


class MembersFile(Protocol):
    """Where a task keeps the list of members, so that it survives the process."""

    def write(self, members: MemberList) -> None:
        """Keeps a list; when this returns, it is on disk, or a later one.

        Any thread may call it.
        """


class TaskMembers:
    """The list of members that a task knows.

    Args:
      task: the task.
      members: the list that it begins with.
      tasks: reaches the tasks of the list.
      driver: runs it.
      file: keeps the list; None if this task must not be the leader.
      is_up: returns whether a task answers at an address.

    Attributes:
      members: the list.
      changed: called with a new list, once it counts.
      is_being_removed: whether a caller waits to hear that this task, a former leader, is removed.
    """

    def __init__(
        self,
        task: Task,
        members: MemberList,
        tasks: TasksOfCluster,
        driver: CoreDriver,
        file: MembersFile | None,
        is_up: Callable[[Task, str], Awaitable[bool]],
    ) -> None:
        self.members = members
        self.changed: Callable[[MemberList], object] = lambda members: None
        self.is_being_removed = False
        self._task = task
        self._tasks = tasks
        self._driver = driver
        self._file = file
        self._is_up = is_up
        self._changing = Mutex(driver)
        self._acknowledged: dict[Task, tuple[int, int]] = {}
        self._telling: Job[None] | None = None

    @property
    def is_leader(self) -> bool:
        """Whether this task changes the list."""
        return self.members.leader == str(self._task)

    def start(self) -> None:
        """Begins to tell others, if the list has changed since the cluster was started."""
        if self.members.epoch:
            self._tell_all()

    def close(self) -> None:
        """Ends telling others."""
        if self._telling is not None:
            self._telling.cancel()

    @remote(needs=AccessRole.CLUSTER, since=12)
    async def read(self) -> bytes:
        """Returns the packed list."""
        return self.members.to_bytes()

    @remote(needs=AccessRole.CLUSTER, since=12)
    async def adopt(self, packed: bytes) -> bytes:
        """Takes a list of a higher epoch; returns the one that this task has then."""
        members = MemberList.from_bytes(packed)
        if members.epoch > self.members.epoch:
            await self._keep(members)
        return self.members.to_bytes()

    @remote(needs=AccessRole.CLUSTER, since=12)
    async def check_leader(self, is_next: bool) -> None:
        """Checks that this task may change the list.

        Args:
          is_next: whether it is meant to become the leader.

        Raises:
          FailedPreconditionError: if it may not.
        """
        if not (self.is_leader or is_next):
            raise FailedPreconditionError(f"{self.members.leader} changes the list of members")
        if self._file is None:
            raise FailedPreconditionError(
                f"{self._task} cannot change the list of members, because it has no file for it: "
                "start it with `jflow server --members DIR`"
            )

    @remote(needs=AccessRole.CLUSTER, since=12)
    async def add(self, job: str, index: int | None, address: str) -> tuple[str, bytes]:
        """Adds a task, or gives one that has ended another address.

        Args:
          job: the job.
          index: the index of the task; None for the task of the job at this address, else for the
            next index.
          address: where it will be, "host:port".

        Returns:
          The task, and the packed list.

        Raises:
          AlreadyExistsError: if the task answers at its present address, or has left.
          FailedPreconditionError: as `check_leader`.
        """
        async with self._changing:
            await self.check_leader(False)
            members = self.members
            if index is None:
                task = members.find(job, address) or members.next_task(job)
            else:
                task = Task(job, index)
            at = members.addresses.get(str(task))
            if at is not None and at != address and await self._is_up(task, at):
                raise AlreadyExistsError(
                    f"{task} is up at {at}; drain it (`jflow drain`) or stop it before another "
                    "process takes its place"
                )
            if at != address:
                await self._change(members.with_task(task, address))
            return str(task), self.members.to_bytes()

    @remote(needs=AccessRole.CLUSTER, since=12)
    async def remove(self, task: str, successor: str) -> bytes:
        """Removes a task whose state its successor has; returns the packed list.

        Raises:
          FailedPreconditionError: as `check_leader`, of this task and of the next leader.
        """
        leaving, heir = Task.parse(task), Task.parse(successor)
        async with self._changing:
            await self.check_leader(False)
            if leaving == self._task:
                await self._hand_over(heir)
            elif leaving not in self.members.left:
                heir = self.members.successor_of(heir)  # which may have left since
                await self._change(self.members.without(leaving, heir), also=(leaving,))
        if leaving == self._task:
            self.is_being_removed = True
            try:
                return await call_task(
                    self._tasks, heir, TaskMembers.remove, TELL_S, task, successor
                )
            finally:
                self.is_being_removed = False
        return self.members.to_bytes()

    async def _hand_over(self, heir: Task) -> None:
        """Makes another task the leader; when this returns, it has the list."""
        await call_task(self._tasks, heir, TaskMembers.check_leader, TELL_S, True)
        await self._change(self.members.led_by(heir))
        self._tell_all()  # goes on if the next call is lost
        try:
            await self._tell(heir, self._tasks[heir])
        except TimeoutError:
            raise UnavailableError(
                f"{heir}, which is to change the list of members, does not answer; it is sent the "
                "list again, and then this can be repeated",
                task=str(heir),
            ) from None

    async def _change(self, members: MemberList, also: Collection[Task] = ()) -> None:
        """Makes a list count: on disk, here, and for all that answer.

        Raises:
          AbortedError: if another task has a later list, which this one takes.
        """
        if not self.members.epoch:  # the file of an earlier life may be lost
            await self._tell_each({one: self._tasks[one] for one in self._others()})
        if members.epoch == self.members.epoch + 1:
            reached = {task: self._tasks[task] for task in (*self._others(), *also)}
            await self._keep(members)
            await self._tell_each(reached)
        if self.members is not members:
            raise AbortedError(
                f"another task has a later list of members, of epoch {self.members.epoch}; try "
                "again",
                task=str(self._task),
            )

    async def _keep(self, members: MemberList) -> None:
        """Keeps a list, and makes it count here, unless there is a later one."""
        if members.epoch > self.members.epoch and self._file is not None:
            await self._driver.work(self._file.write, members)
        if members.epoch > self.members.epoch:  # another one may have come meanwhile
            self.members = members
            self.changed(members)
            if self.is_leader:
                self._tell_all()

    def _others(self) -> list[Task]:
        return [task for task in self.members.cluster.tasks() if task != self._task]

    async def _tell_each(self, tasks: Mapping[Task, TaskCalls]) -> None:
        """Tells tasks of the list at the same time, as far as they answer."""

        async def tell(task: Task, proxy: TaskCalls) -> None:
            with suppress(OpError, TimeoutError):
                await self._tell(task, proxy)

        await self._driver.all_of([tell(task, proxy) for task, proxy in tasks.items()])

    async def _tell(self, task: Task, proxy: TaskCalls) -> None:
        """Tells a task of the list, and takes the one that it has if that is later."""
        members = self.members
        async with self._driver.limit(TELL_S):
            info = await proxy.connect(TELL_S)
            knows = (members.epoch, info.incarnation)
            if self._acknowledged.get(task) == knows:
                return
            packed = await proxy.call(TaskMembers.adopt, info.incarnation, members.to_bytes())
            self._acknowledged[task] = knows
        await self._keep(MemberList.from_bytes(packed))

    def _tell_all(self) -> None:
        if self._telling is None:
            self._telling = self._driver.start(self._go_on_telling())

    async def _go_on_telling(self) -> None:
        """Tells those that do not know of the list, also once they have restarted.

        A task that is not the leader only tells the leader, which may have been away when it became
        that, or may have lost its file.
        """
        while True:
            leader = Task.parse(self.members.leader)
            for task in self._others() if self.is_leader else [leader]:
                with suppress(OpError, TimeoutError):
                    await self._tell(task, self._tasks[task])
            epoch, _ = self._acknowledged.get(leader, (-1, 0))
            if epoch == self.members.epoch and not self.is_leader:
                break
            await self._driver.sleep(PAUSE_S)
        self._telling = None


class ClusterMembers:
    """What a client may ask about the members of the cluster, through its master.

    Every call has a deadline; `connect_timeout` is the longest time to wait for a task that does
    not answer, in seconds.

    Args:
      servers: the master's view of the cluster.
      own: the list that the master's task knows.
    """

    def __init__(self, servers: ClusterView[Any, Any], own: TaskMembers) -> None:
        self._servers = servers
        self._own = own

    @remote(needs=AccessRole.READ, doing="reading the list of members", since=12)
    async def read(self, deadline: Deadline) -> bytes:
        """Returns the packed list that the task of this master knows."""
        return self._own.members.seen_by(self._servers.info().cluster).to_bytes()

    @remote(needs=AccessRole.OPERATE, doing="adding a task of job {job!r} at {address}", since=12)
    async def add(
        self, job: str, index: int | None, address: str, connect_timeout: float, deadline: Deadline
    ) -> tuple[str, bytes]:
        """Adds a task to the cluster; see `TaskMembers.add`."""
        doing = f"adding a task of job {job!r}"
        async with within(self._servers, deadline, doing):
            added: tuple[str, bytes] = await self._call_leader(
                TaskMembers.add, connect_timeout, job, index, address
            )
        return added

    @remote(needs=AccessRole.OPERATE, doing="draining {task}", since=12)
    async def drain(
        self,
        task: str,
        successor: str,
        hold_s: float,
        connect_timeout: float,
        deadline: Deadline,
    ) -> bytes:
        """Moves everything from a task to another one, and removes it; returns the packed list.

        The task ends its server then, once what it runs has ended. If this fails, it can be called
        again: what has moved stays where it is.

        Args:
          task: the task that leaves.
          successor: the task that gets its state, and has the same devices; "" for the next one of
            its job.
          hold_s: the longest time that steps are held, in seconds.
          connect_timeout, deadline: as of every call.

        Raises:
          DeadlineExceededError: if steps that use the task do not end in time.
          FailedPreconditionError: if sessions have state there that is not shared, or the leader
            cannot change the list.
          InvalidArgumentError: if there is no such task, or the successor lacks devices.
          UnavailableError: if a task does not answer.
        """
        async with within(self._servers, deadline, f"draining {task}"):
            members = self._own.members
            leaving = parsed_task(task)
            members.check(leaving)
            heir = parsed_task(successor) if successor else _next_of_job(members, leaving)
            members.without(leaving, heir)  # which checks them
            await self._check_ready(members, leaving, heir, connect_timeout)
            heir = await self._move(leaving, heir, hold_s, connect_timeout)
            removed: bytes = await self._call_leader(
                TaskMembers.remove, connect_timeout, str(leaving), str(heir)
            )
        return removed

    async def _check_ready(
        self, members: MemberList, leaving: Task, heir: Task, connect_timeout: float
    ) -> None:
        """Checks, before anything moves, that all tasks take part and the list can change."""
        tasks = self._servers.tasks
        check = TaskMembers.check_leader
        await self._call_leader(check, connect_timeout, False)
        if members.leader == str(leaving):
            await call_task(tasks, heir, check, connect_timeout, True)
        for task in members.cluster.tasks():
            await call_task(tasks, task, TaskMembers.read, connect_timeout)
        infos = [await tasks[one].connect(connect_timeout) for one in (leaving, heir)]
        own, others = ({_local_name(one) for one in info.device_names} for info in infos)
        if lacking := sorted(own - others):
            raise InvalidArgumentError(
                f"{heir} cannot take the place of {leaving}: it has no {', '.join(lacking)}; name "
                "a task with the same devices"
            )

    async def _move(self, leaving: Task, heir: Task, hold_s: float, connect_timeout: float) -> Task:
        """Moves everything from a task; returns the task that has it now."""
        everything = StateId.everything_on(leaving)
        try:
            await StateMover(self._servers, [everything], str(heir), hold_s, connect_timeout).move()
        except MovedError as error:
            if everything not in error.moved:
                raise
            return Task.parse(error.moved[everything])  # an earlier call has moved it
        return heir

    async def _call_leader(
        self, method: Callable[..., Any], connect_timeout: float, *args: Any, **kwargs: Any
    ) -> Any:
        leader = Task.parse(self._own.members.leader)
        try:
            return await call_task(
                self._servers.tasks, leader, method, connect_timeout, *args, **kwargs
            )
        except UnavailableError as error:
            error.add(
                f"no task joins or leaves without {leader}, which changes the list of members"
            )
            raise


def _next_of_job(members: MemberList, task: Task) -> Task:
    """Returns the next task of the job of a task, after the last one the first."""
    of_job = [one for one in members.cluster.tasks() if one.job == task.job and one != task]
    if not of_job:
        raise InvalidArgumentError(
            f"{task} is the only task of its job; name the task that gets what is on it (--to)"
        )
    return min(of_job, key=lambda one: (one.index < task.index, one.index))


def _local_name(device: str) -> str:
    """Returns the part of a device's name that two tasks can have in common."""
    return device.partition("/device:")[2]

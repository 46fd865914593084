"""`MemberList`: the tasks of a cluster as they join and leave, in a list with an epoch. Pure.

One task, the *leader*, changes the list, and each change has the next epoch; all others take what
has a higher epoch than theirs. The first list follows from the cluster with which all tasks were
started, so it has the epoch 0 everywhere.

Invariants:

* A task that has left has a *successor*, which has its state and stands for it in device requests.
  Its name is never given to another task: requests would mean both.
* The *state task*, where state is that requests no device, changes only when it leaves.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec.structs import replace

from jflow.base.cluster import ClusterSpec, Task
from jflow.base.packing import Limits, Record, Size
from jflow.errors import AlreadyExistsError, InvalidArgumentError


class MemberList(Record, frozen=True):
    """The tasks of a cluster.

    Attributes:
      epoch: counts the changes.
      leader: the task that changes the list.
      state_task: the task of state that requests no device.
      addresses: "host:port", by task.
      successors: the tasks that have what was on tasks which have left, by these.
    """

    what = "list of members"
    limits: ClassVar[Limits] = Limits(n_bytes=1 << 22)

    epoch: Size
    leader: str
    state_task: str
    addresses: dict[str, str]
    successors: dict[str, str]

    def __post_init__(self) -> None:
        try:
            cluster = self.cluster
            tasks = {*cluster.tasks()}
            named = {Task.parse(self.leader), Task.parse(self.state_task)}
            successors = {*map(self.successor_of, map(Task.parse, self.successors))}
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(f"malformed list of members: {error}") from None
        if unknown := sorted((named | successors) - tasks):
            raise InvalidArgumentError(f"malformed list of members: {unknown[0]} is not in it")

    @classmethod
    def first(cls, cluster: ClusterSpec) -> MemberList:
        """Returns the list of a cluster that has just started."""
        addresses = {str(one): cluster.task_address(one.job, one.index) for one in cluster.tasks()}
        state_task = str(cluster.state_task)
        return cls(0, state_task, state_task, addresses, {})

    @property
    def cluster(self) -> ClusterSpec:
        """The tasks and their addresses."""
        jobs: dict[str, dict[int, str]] = {}
        for name, address in self.addresses.items():
            task = Task.parse(name)
            jobs.setdefault(task.job, {})[task.index] = address
        return ClusterSpec(jobs)

    @property
    def left(self) -> dict[Task, Task]:
        """The tasks that have what was on tasks which have left, by these."""
        return {task: self.successor_of(task) for task in map(Task.parse, self.successors)}

    def seen_by(self, cluster: ClusterSpec) -> MemberList:
        """Returns the part of the list that a task with device filters sees.

        Args:
          cluster: the tasks that it sees.
        """
        seen = {str(task) for task in cluster.tasks()}
        if seen >= self.addresses.keys():
            return self
        state_task = str(cluster.state_task)
        return MemberList(
            self.epoch,
            self.leader if self.leader in seen else state_task,
            self.state_task if self.state_task in seen else state_task,
            {name: at for name, at in self.addresses.items() if name in seen},
            {str(gone): str(heir) for gone, heir in self.left.items() if str(heir) in seen},
        )

    def successor_of(self, task: Task) -> Task:
        """Returns the task that has what was on a task: itself, unless it has left."""
        name, seen = str(task), set[str]()
        while name in self.successors and name not in seen:
            seen.add(name)
            name = self.successors[name]
        return Task.parse(name)

    def find(self, job: str, address: str) -> Task | None:
        """Returns the task of a job at an address; None if there is none."""
        for name, at in self.addresses.items():
            task = Task.parse(name)
            if task.job == job and at == address:
                return task
        return None

    def next_task(self, job: str) -> Task:
        """Returns the next task of a job, which has a name that none has had."""
        names = (*self.addresses, *self.successors)
        indices = [task.index for task in map(Task.parse, names) if task.job == job]
        return Task(job, max(indices, default=-1) + 1)

    def with_task(self, task: Task, address: str) -> MemberList:
        """Returns the list with one more task, or with another address for one.

        Raises:
          AlreadyExistsError: if the task has left.
          InvalidArgumentError: if the address is malformed, or another task has it.
        """
        if str(task) in self.successors:
            raise AlreadyExistsError(
                f"{task} has left the cluster, and {self.successor_of(task)} has what was on it; "
                "join without an index, and the next free one is taken"
            )
        try:
            cluster = self.cluster.replace(task, address)
        except ValueError as error:
            raise InvalidArgumentError(str(error)) from None
        addresses = {**self.addresses, str(task): cluster.task_address(task.job, task.index)}
        return replace(self, epoch=self.epoch + 1, addresses=addresses)

    def led_by(self, task: Task) -> MemberList:
        """Returns the list with another leader, which must be in it."""
        return replace(self, epoch=self.epoch + 1, leader=str(task))

    def without(self, task: Task, successor: Task) -> MemberList:
        """Returns the list without a task, whose successor has its state and its duties.

        Raises:
          InvalidArgumentError: if one of them is not in the list, or they are the same.
        """
        for one in (task, successor):
            self.check(one)
        if task == successor:
            raise InvalidArgumentError(f"{task} cannot be its own successor; name another task")
        gone, heir = str(task), str(successor)
        return MemberList(
            self.epoch + 1,
            heir if self.leader == gone else self.leader,
            heir if self.state_task == gone else self.state_task,
            {name: at for name, at in self.addresses.items() if name != gone},
            {**self.successors, gone: heir},
        )

    def check(self, task: Task) -> None:
        """Raises InvalidArgumentError if a task is not in the list."""
        if str(task) in self.successors:
            raise InvalidArgumentError(
                f"{task} has left the cluster; {self.successor_of(task)} has what was on it"
            )
        if str(task) not in self.addresses:
            raise InvalidArgumentError(
                f"there is no task {task} in the cluster; it has {[*self.addresses]}"
            )

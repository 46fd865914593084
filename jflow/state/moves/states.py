"""Names of state in a cluster, and which state plans use and change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from jflow.base.cluster import Device, Task
from jflow.errors import AbortedError
from jflow.plan import CALLBACK, Call, Loop, Plan, Run, owner_of, uses_state

VARIABLE = "variable"
"""The kind of variables in a `StateId`."""

EVERYTHING = "everything"
"""The kind of a `StateId` that stands for all that is on a task, and for the use of its devices."""

_NOT_MOVED: Mapping[StateId, str] = MappingProxyType({})

_WHOLE_OR_NOT_AT_ALL = frozenset(
    {"queue.close", "queue.dequeue", "queue.dequeue_many", "queue.enqueue"}
)
"""Kernels that have no effect if they end while they wait. `queue.enqueue_many` may have entered
some of its elements."""


def container_on(task: Task, name: str) -> str:
    """Returns the name of a container on a task: "" also for the name of its job, a synonym."""
    return "" if name == task.job else name


class StateId(NamedTuple):
    """The name of a variable or resource on a device of a cluster.

    Attributes:
      device: the full name of the device that the step names; the task of `EVERYTHING`.
      kind: the kind of resource, `VARIABLE`, or `EVERYTHING`.
      container: its container; the default one is "".
      name: its name.
      owner: the session that it belongs to; "" if it is shared by name.
    """

    device: str
    kind: str
    container: str
    name: str
    owner: str = ""

    @classmethod
    def everything_on(cls, task: Task) -> StateId:
        """Returns the name of all that is on a task."""
        return cls(str(task), EVERYTHING, "", "")

    def __str__(self) -> str:
        if self.kind == EVERYTHING:
            return f"everything on {self.device}"
        text = self.kind.replace("_", " ")
        return f"{text} {self.name!r} (container {self.container!r}) on {self.device}"

    @property
    def task(self) -> Task:
        """The task of the device. Raises ValueError if its name is malformed."""
        if self.kind == EVERYTHING:
            return Task.parse(self.device)
        return Device.parse(self.device).task

    @property
    def session(self) -> str:
        """The session that owns it, or whose container it is in; "" if it is shared."""
        return self.owner or owner_of(self.container)

    @property
    def is_variable(self) -> bool:
        """Whether it is a variable."""
        return self.kind == VARIABLE

    def on(self, device: str) -> StateId:
        """Returns the name of the same state on another device; of everything, on another task."""
        if self.kind == EVERYTHING:
            return self._replace(device=device)
        container = container_on(Device.parse(device).task, self.container)
        return self._replace(device=device, container=container)

    def on_task(self, task: Task) -> StateId:
        """Returns the name of the same state on the same device of another task."""
        return self.on(str(replace(Device.parse(self.device), task=task)))


Change = frozenset[StateId]
"""The state that one instruction changes, or may change."""


class MovedError(AbortedError):
    """Raised if the state that a step uses has moved; nothing of the step has been done.

    The step can be placed and registered again, and then run.

    Attributes:
      moved: the devices where the state is now, by the state as the step names it. Empty if the
        step only has to be run again, because the state is about to move.
    """

    moved: Mapping[StateId, str] = _NOT_MOVED

    @classmethod
    def of(cls, moved: Mapping[StateId, str]) -> MovedError:
        """Returns the error for a step that uses moved state."""
        places = ", ".join(f"{state} is now on {device}" for state, device in moved.items())
        error = cls(f"{places}; register the step again")
        error.moved = dict(moved)
        return error


def states_of(plans: Iterable[Plan]) -> frozenset[StateId]:
    """Returns the variables and resources that plans use."""
    return frozenset(state for plan in plans for state in (*_variables(plan), *_resources(plan)))


def used_by(plans: Iterable[Plan]) -> frozenset[StateId]:
    """Returns what a step uses: its state, and the tasks that its plans run on as a whole."""
    plans = tuple(plans)
    return states_of(plans) | {StateId.everything_on(plan.device.task) for plan in plans}


def sessions_of(plans: Iterable[Plan]) -> set[str]:
    """Returns the sessions that own some of the state that plans use."""
    return {state.session for state in states_of(plans)} - {""}


def changes_of(plans: Iterable[Plan]) -> tuple[Change, ...]:
    """Returns the state that each instruction may change, without those that change nothing."""
    changes = []
    for plan in plans:
        variables, resources = _variables(plan), _resources(plan)
        for instruction in plan.all_instructions:
            match instruction:
                case Run(writes=(_, *_) as writes):
                    changes.append(frozenset(variables[i] for i in writes))
                case Call(resources=(_, *_) as used):
                    changes.append(frozenset(resources[i] for i in used))
    return tuple(changes)


def writes_often(plans: Iterable[Plan]) -> bool:
    """Whether more than one instruction changes variables, apart from the bodies of loops.

    A loop may go on for as long as there is work, and no snapshot could wait for its end.
    """
    instructions = (one for plan in plans for one in plan.instructions)
    return sum(isinstance(one, Run) and bool(one.writes) for one in instructions) > 1


def _variables(plan: Plan) -> list[StateId]:
    device, task = str(plan.device), plan.device.task
    return [
        StateId(device, VARIABLE, container_on(task, key.container), key.name)
        for key in (variable.key for variable in plan.variables)
    ]


def _resources(plan: Plan) -> list[StateId]:
    device, task = str(plan.device), plan.device.task
    return [
        StateId(device, spec.kind, container_on(task, spec.container), spec.name, spec.owner)
        for spec in plan.resources
    ]


def is_restartable(plans: Iterable[Plan]) -> bool:
    """Whether a step can be run again after it was ended while it waited for a queue.

    It can if waiting for the queue is the only thing that it does beyond computing values.
    """
    n_waiting = 0
    for instruction in (one for plan in plans for one in plan.all_instructions):
        match instruction:
            case Loop() if uses_state(instruction):
                return False
            case Run(writes=(_, *_)):
                return False
            case Call(function=function) if function == CALLBACK:
                return False
            case Call(resources=(_,), function=function) if function in _WHOLE_OR_NOT_AT_ALL:
                n_waiting += 1
            case Call(resources=(_, *_)):
                return False
    return n_waiting == 1

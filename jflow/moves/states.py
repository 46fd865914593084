"""Names of state in a cluster, and what plans tell about the state that they use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from jflow.cluster import Device
from jflow.errors import AbortedError
from jflow.plan import CALLBACK, Call, Plan, Run

VARIABLE = "variable"
"""The kind of variables in a `StateId`."""

_NOT_MOVED: Mapping[StateId, str] = MappingProxyType({})

_WHOLE_OR_NOT_AT_ALL = frozenset(
    {"queue.close", "queue.dequeue", "queue.dequeue_many", "queue.enqueue"}
)
"""Kernels that have no effect if they end while they wait. `queue.enqueue_many` may have entered
some of its elements."""


class StateId(NamedTuple):
    """A variable or resource on a device of a cluster.

    Attributes:
      device: the full name of the device that the step names.
      kind: the kind of resource, or `VARIABLE`.
      container: its container; the default one is "".
      name: its name.
      owner: the session that it belongs to; "" if it is shared by name.
    """

    device: str
    kind: str
    container: str
    name: str
    owner: str = ""

    def __str__(self) -> str:
        said = self.kind.replace("_", " ")
        return f"{said} {self.name!r} (container {self.container!r}) on {self.device}"

    def on(self, device: str) -> StateId:
        """The same state on another device."""
        job = Device.parse(device).task.job
        container = "" if self.container == job else self.container
        return self._replace(device=device, container=container)


class MovedError(AbortedError):
    """The state that a step uses has moved, and nothing of the step has been done.

    The step can be placed and registered again, and then run.

    Attributes:
      moved: the devices where the state is now, by the state as the step names it. Empty if the
        step only has to be run again, because the state is about to move.
    """

    moved: Mapping[StateId, str] = _NOT_MOVED

    @classmethod
    def of(cls, moved: Mapping[StateId, str]) -> MovedError:
        """The error of a step that uses moved state."""
        said = ", ".join(f"{state} is now on {device}" for state, device in moved.items())
        error = cls(f"{said}; register the step again")
        error.moved = dict(moved)
        return error


def states_of(plans: Iterable[Plan]) -> frozenset[StateId]:
    """The variables and resources that plans use."""
    found = set()
    for plan in plans:
        device, job = str(plan.device), plan.device.task.job
        for variable in plan.variables:
            container = "" if variable.key.container == job else variable.key.container
            found.add(StateId(device, VARIABLE, container, variable.key.name))
        for spec in plan.resources:
            container = "" if spec.container == job else spec.container
            found.add(StateId(device, spec.kind, container, spec.name, spec.owner))
    return frozenset(found)


def is_restartable(plans: Iterable[Plan]) -> bool:
    """Whether a step can be run again if it ended while it waited for a queue.

    It can if waiting for the queue is the only thing that it does beyond computing values.
    """
    n_waiting = 0
    for instruction in (one for plan in plans for one in plan.instructions):
        match instruction:
            case Run(writes=(_, *_)):
                return False
            case Call(function=function) if function == CALLBACK:
                return False
            case Call(resources=(_,), function=function) if function in _WHOLE_OR_NOT_AT_ALL:
                n_waiting += 1
            case Call(resources=(_, *_)):
                return False
    return n_waiting == 1

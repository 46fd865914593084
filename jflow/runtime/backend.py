"""What a session needs from whoever runs its steps."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from jflow.cluster import Device
from jflow.deadline import Deadline
from jflow.errors import OpError
from jflow.graph import Graph, Operation, Tensor, VariableRef
from jflow.graph.callbacks import Callback, callbacks_of
from jflow.partition import Partition, Segment, partition, prune
from jflow.placement import Inventory, Placer
from jflow.plan import Program

Array = np.ndarray[Any, Any]


class Step(Protocol):
    """A step that is ready to run. Every way to run it takes the fed arrays and a deadline."""

    def prepare(self, deadline: Deadline) -> None:
        """Registers it where it is not registered yet, as its first run would."""

    def run(self, feeds: Sequence[Array], deadline: Deadline) -> list[Array]:
        """Gives the fetched values as NumPy arrays, which are the caller's own."""

    def start(self, feeds: Sequence[Array], deadline: Deadline) -> Future[list[Array]]:
        """As `run`, and waits for nothing; if the future is cancelled, the step is too."""

    def compute(self, feeds: Sequence[Any], deadline: Deadline) -> list[jax.Array]:
        """Takes JAX arrays too, and gives JAX arrays."""


@dataclass(frozen=True)
class DeviceInfo:
    """A device as `Session.list_devices` tells it."""

    name: str
    device_type: str
    incarnation: int


class Backend(Protocol):
    """Runs steps, in this process or on a cluster.

    Attributes:
      keeps_weak_types: whether the arrays that `Step.compute` gives have JAX's weak types.
    """

    keeps_weak_types: bool

    @property
    def owner(self) -> str:
        """A name that no other session has, for resources that it does not share."""

    def inventory(self, deadline: Deadline) -> Inventory:
        """The devices there are; what has to be asked for is there by the deadline."""

    def lower(self, segment: Segment) -> Program:
        """Makes the program of a segment and keeps it for `register`."""

    def keep(self, constant: Array) -> str:
        """Keeps a constant for `register`; returns the name that it has there."""

    def register(
        self, plans: Partition, n_fetches: int, callbacks: Sequence[Callback] = ()
    ) -> Step:
        """Makes a step of plans, which call `callbacks` by their numbers.

        On a cluster the step registers itself when it is first run.
        """

    def peek(self, ref: VariableRef) -> jax.Array | None:
        """The value that this process has of a variable, None if it has none; never waits."""

    def list_devices(self, deadline: Deadline) -> list[DeviceInfo]:
        """Every device, the master's own first."""

    def close(self) -> None:
        """Cancels what runs and lets go of everything."""


class StepKey(NamedTuple):
    """What identifies a step of a session. A tuple, for it is looked up at every step."""

    targets: tuple[Operation, ...]
    fetches: tuple[Tensor, ...]
    fed: tuple[Tensor, ...]


def place_step(
    graph: Graph, key: StepKey, backend: Backend, placer: Placer, deadline: Deadline
) -> dict[Operation, Device]:
    """A device for each operation that a step needs.

    Raises:
      InvalidArgumentError: if a placeholder is not fed, a device does not exist, or operations
        that are colocated ask for different devices.
      UnavailableError, DeadlineExceededError: if a task that the step needs does not answer.
    """
    ops = prune(graph, key.targets, key.fetches, set(key.fed))
    return dict(placer.place(ops, backend.inventory(deadline)))


def register_step(
    graph: Graph, key: StepKey, backend: Backend, placer: Placer, deadline: Deadline
) -> Step:
    """Takes a step through every stage: prune, place, partition, lower, register.

    What is computed in this process is not interrupted. The caller keeps the step and checks the
    deadline then, so that a call that was too short is not in vain for the next one.

    Raises:
      OpError: as `place_step`.
    """
    placement = place_step(graph, key, backend, placer, deadline)
    plans = partition(
        list(placement),
        placement,
        key.fed,
        key.fetches,
        backend.lower,
        backend.keep,
        owner=backend.owner,
    )
    return backend.register(plans, len(key.fetches), callbacks_of(placement))


def add_origin(error: OpError, graph: Graph) -> None:
    """Adds the user's line to an error that names an operation."""
    if error.op is None:
        return
    try:
        op: Operation = graph.get_operation_by_name(error.op)
    except KeyError:
        return
    if op.origin not in error.message:
        error.message += f" [{op.name!r} was made at {op.origin}]"
        error.args = (error.message,)

"""What sessions and connections need from the component that runs their steps."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

import jax

from jflow.cluster import Task
from jflow.deadline import Deadline
from jflow.graph import VariableRef
from jflow.pipeline import CompiledStep
from jflow.placement import Inventory
from jflow.values import Array


class Executable(Protocol):
    """A step that is ready to run. Every way to run it takes the fed arrays and a deadline."""

    def prepare(self, deadline: Deadline) -> None:
        """Registers it where it is not registered yet, as its first run would."""

    def run(self, feeds: Sequence[Array], deadline: Deadline) -> list[Array]:
        """Gives the fetched values as NumPy arrays, which are the caller's own."""

    def start(self, feeds: Sequence[Array], deadline: Deadline) -> Future[list[Array]]:
        """As `run`, and waits for nothing; if the future is cancelled, the step is too.

        Raises:
          UnimplementedError: if the step calls Python of a client that is not on its own task.
        """

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
      keeps_weak_types: whether the arrays that `Executable.compute` gives have JAX's weak types.
    """

    keeps_weak_types: bool

    @property
    def owner(self) -> str:
        """A name that no other session has, for resources that it does not share."""

    def inventory(self, tasks: Collection[Task], deadline: Deadline) -> Inventory:
        """The tasks there are, and the devices of some of them, which it waits for.

        Raises:
          UnavailableError, DeadlineExceededError: if one of these tasks does not answer.
        """

    def register(self, compiled: CompiledStep) -> Executable:
        """Makes a compiled step ready to run.

        On a cluster it registers itself when it is first run.
        """

    def peek(self, ref: VariableRef) -> jax.Array | None:
        """The value that this process has of a variable, None if it has none; never waits."""

    def list_devices(self, deadline: Deadline) -> list[DeviceInfo]:
        """Every device, the master's own first."""

    def close(self) -> None:
        """Cancels what runs and frees everything."""

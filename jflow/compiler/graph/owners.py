"""The current owner of new variables and resources: a connection, or the default graph.

Inside `jflow.connect`, variables and queues are eager: they belong to the connection, exist
immediately and act at once. In a block of graph code inside of it they belong to the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import jax

from jflow.base.context import Stack
from jflow.base.deadline import Deadline
from jflow.compiler.graph.graph import Graph, graphs
from jflow.compiler.graph.primitives import Owner, VariableRef


class Runnable(Protocol):
    """An executable part of a graph."""

    def prepare(self, deadline: Deadline) -> None:
        """Does in advance the part of the first run that does not depend on its inputs."""

    def run(self, feeds: Sequence[Any], deadline: Deadline) -> list[Any]:
        """Runs it with arrays for the fed tensors, and returns the fetched arrays."""

    def start(self, feeds: Sequence[Any], deadline: Deadline) -> Future[list[Any]]:
        """Like `run`, but returns a future; cancelling the future cancels the step."""


class EagerOwner(Owner, Protocol):
    """The owner of eager variables and resources: a connection.

    Attributes:
      timeout: longest time for a call in seconds, None for no limit.
    """

    timeout: float | None

    def create(self, ref: VariableRef, initial: Any) -> VariableRef:
        """Initializes the variable, unless it has a value.

        Args:
          ref: the variable.
          initial: an array, or a function without arguments, called on the variable's device.

        Returns:
          The variable with its actual device and container, equal for all equivalent requests.

        Raises:
          InvalidArgumentError: if it exists with another shape or dtype.
        """

    def step(
        self,
        graph: Graph,
        target: Any,
        fetches: Sequence[Any],
        fed: Sequence[Any],
        deadline: Deadline,
    ) -> Runnable:
        """Makes a part of a graph runnable.

        Args:
          graph: the graph.
          target: an operation to run.
          fetches, fed: tensors whose values it returns and takes.
          deadline: deadline of the call.
        """

    def peek(self, ref: VariableRef) -> jax.Array | None:
        """Returns the variable's value if this process has it, else None; never blocks."""

    def sharding_of(self, ref: VariableRef) -> str:
        """Returns how the variable is sharded over its mesh, as text; "" if it has no value."""

    def unnamed(self, title: str = "unnamed") -> str:
        """Returns a unique name for a variable or resource that is not shared."""


class _Block(NamedTuple):
    owner: EagerOwner
    graphs_open: int


# A closed connection must not stay current because an asynchronous task left its block first.
_OWNERS: Stack[_Block] = Stack(is_strict=False)


def current() -> EagerOwner | None:
    """Returns the owner of new variables; None in graph code."""
    block = _OWNERS.current
    # A different number of open graphs means a graph block inside the connection's block.
    return block.owner if block is not None and graphs.depth == block.graphs_open else None


def innermost() -> EagerOwner | None:
    """Returns the owner of the innermost connection scope, in graph code as well."""
    block = _OWNERS.current
    return None if block is None else block.owner


def own_everywhere(owner: EagerOwner) -> None:
    """Makes an owner current on all threads outside connection scopes, until `forget`."""
    _OWNERS.add_everywhere(_Block(owner, 0))


def forget(owner: EagerOwner) -> None:
    """Reverts `own_everywhere`; the previous owner becomes current again."""
    _OWNERS.discard_everywhere(lambda block: block.owner is owner)


def owned_by(owner: EagerOwner) -> AbstractContextManager[Any]:
    """Returns a context manager: new variables and queues in it are eager and belong to `owner`."""
    return _OWNERS.pushed(_Block(owner, graphs.depth))

"""The owner of the state that this thread makes: a connection, or the default graph.

Inside `jflow.connect` variables and queues are eager: they belong to the connection, exist from the
start and work at once. In a block of graph code inside of it they belong to the graph again.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import jax

from jflow.context import Stack
from jflow.deadline import Deadline
from jflow.graph.graph import Graph, graphs
from jflow.graph.primitives import Owner, VariableRef


class Runnable(Protocol):
    """A part of a graph, ready to run."""

    def prepare(self, deadline: Deadline) -> None:
        """Does in advance what the first run would have to do."""

    def run(self, feeds: Sequence[Any], deadline: Deadline) -> list[Any]:
        """Runs it with arrays and returns arrays."""

    def start(self, feeds: Sequence[Any], deadline: Deadline) -> Future[list[Any]]:
        """As `run`, without blocking; cancelling the future cancels the run."""


class EagerOwner(Owner, Protocol):
    """The owner of eager variables and resources: a connection.

    Attributes:
      timeout: longest time for a call in seconds, None for no limit.
    """

    timeout: float | None

    def create(self, ref: VariableRef, initial: Any) -> VariableRef:
        """Gives the variable its first value, unless it has one.

        Args:
          ref: the variable.
          initial: an array, or a function without arguments that makes it on the variable's device.

        Returns:
          The variable by its actual device and container, equal for all requests that lead to it.

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
        """Makes a part of a graph ready to run.

        Args:
          graph: the graph.
          target: an operation to run.
          fetches, fed: tensors whose values it returns, and takes.
          deadline: of the call that needs it.
        """

    def peek(self, ref: VariableRef) -> jax.Array | None:
        """The value that this process has of a variable, None if it has none; never blocks."""

    def unnamed(self, title: str = "unnamed") -> str:
        """A unique name for a variable or resource that only its maker uses."""


class _Block(NamedTuple):
    owner: EagerOwner
    graphs_open: int


# A closed connection must not stay current because an asynchronous task left its block first.
_OWNERS: Stack[_Block] = Stack(is_strict=False)


def current() -> EagerOwner | None:
    """The owner of variables made here; None in graph code."""
    block = _OWNERS.current
    # Another number of open graphs means a block of graph code inside the connection's.
    return block.owner if block is not None and graphs.depth == block.graphs_open else None


def innermost() -> EagerOwner | None:
    """The owner of the innermost connection block, inside graph code too."""
    block = _OWNERS.current
    return None if block is None else block.owner


def own_everywhere(owner: EagerOwner) -> None:
    """Makes an owner current on every thread that has no connection block, until `forget`."""
    _OWNERS.add_everywhere(_Block(owner, 0))


def forget(owner: EagerOwner) -> None:
    """Undoes `own_everywhere`; if it was the current one, the one before it is current again."""
    _OWNERS.discard_everywhere(lambda block: block.owner is owner)


def owned_by(owner: EagerOwner) -> AbstractContextManager[Any]:
    """A block whose variables and queues are eager and belong to `owner`."""
    return _OWNERS.pushed(_Block(owner, graphs.depth))

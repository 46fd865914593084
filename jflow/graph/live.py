"""Which connection keeps the variables that this thread makes.

Inside `jflow.connect` a variable is live: it has a value from the start, which a session on the
other end keeps. In a block of graph code inside of it, variables are the graph's again.
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
from jflow.graph.primitives import Keeper, VariableRef


class Runnable(Protocol):
    """A part of a graph, ready to run."""

    def prepare(self, deadline: Deadline) -> None:
        """Does beforehand what has to be done before the first run."""

    def run(self, feeds: Sequence[Any], deadline: Deadline) -> list[Any]:
        """Takes arrays, and gives arrays."""

    def start(self, feeds: Sequence[Any], deadline: Deadline) -> Future[list[Any]]:
        """As `run`, and waits for nothing; what is cancelled is given up."""


class LiveKeeper(Keeper, Protocol):
    """Keeps live variables and resources.

    Attributes:
      timeout: longest time for a call in seconds, None for no limit.
    """

    timeout: float | None

    def create(self, ref: VariableRef, initial: Any) -> VariableRef:
        """Gives the variable its first value, unless it has one.

        Args:
          ref: the variable.
          initial: an array, or a function without arguments that makes it where it is kept.

        Returns:
          The variable by the device and container that it is in, the same however it was asked for.

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
          graph: what to run a part of.
          target: an operation to run.
          fetches, fed: tensors whose values it gives, and takes.
          deadline: of the call that needs it.
        """

    def peek(self, ref: VariableRef) -> jax.Array | None:
        """The value that this process has of a variable, None if it has none; never waits."""

    def unnamed(self) -> str:
        """A name for a variable that its maker gave none; no other variable has it."""


class _Block(NamedTuple):
    keeper: LiveKeeper
    graphs_open: int


# A closed connection must not stay current because an asynchronous task left its block first.
_KEEPERS: Stack[_Block] = Stack(is_strict=False)


def current() -> LiveKeeper | None:
    """The keeper of variables made here; None in graph code."""
    block = _KEEPERS.current
    return block.keeper if block is not None and graphs.depth == block.graphs_open else None


def innermost() -> LiveKeeper | None:
    """The keeper of the innermost block, inside graph code too."""
    block = _KEEPERS.current
    return None if block is None else block.keeper


def peek(ref: VariableRef) -> jax.Array | None:
    """The value of a live variable if this process has it; never waits."""
    keeper: Any = ref.keeper
    found: jax.Array | None = keeper.peek(ref)
    return found


def keep_everywhere(keeper: LiveKeeper) -> None:
    """Makes a keeper that of every thread without a block of its own, until it is forgotten."""
    _KEEPERS.add_everywhere(_Block(keeper, 0))


def forget(keeper: LiveKeeper) -> None:
    """Takes a keeper back; the one before it counts again where it was the last."""
    _KEEPERS.discard_everywhere(lambda block: block.keeper is keeper)


def kept_by(keeper: LiveKeeper) -> AbstractContextManager[Any]:
    """A block whose variables are live and belong to `keeper`."""
    return _KEEPERS.pushed(_Block(keeper, graphs.depth))

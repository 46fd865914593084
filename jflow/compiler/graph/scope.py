"""Context managers that set the graph, device, name, container and control inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from jflow.base.context import Fallback
from jflow.compiler.graph import stack
from jflow.compiler.graph.graph import Graph, Operation, graphs

_GLOBAL = Fallback(Graph)
"""The default graph of threads without an open block."""


def get_default_graph() -> Graph:
    """Returns the graph of this thread's innermost `as_default`, else the global default graph."""
    return graphs.top or _GLOBAL.get()


def reset_default_graph() -> None:
    """Starts a new global default graph.

    Raises:
      AssertionError: inside a `with graph.as_default()` block.
    """
    if graphs.top is not None:
        raise AssertionError("reset_default_graph cannot be called inside graph.as_default()")
    _GLOBAL.discard()


def get_default_session() -> stack.DefaultSession | None:
    """Returns the default session of this thread, or None."""
    return stack.sessions.top


def colocate_with(op: Any, ignore_existing: bool = False) -> AbstractContextManager[Any]:
    """Returns a context manager whose operations run on the device of another operation.

    Colocated operations are placed as one, transitively: the request of any of them holds for all.
    Device blocks around this one are discarded. Blocks nest, so an operation can be colocated with
    several others.

    Args:
      op: an operation, tensor or variable; None discards the blocks around.
      ignore_existing: whether to discard colocation blocks around this one.

    Raises:
      TypeError: if `op` has another type.
      ValueError: if it belongs to another graph, or is None without `ignore_existing`.
    """
    return get_default_graph().colocate_with(op, ignore_existing)


def container(name: str) -> AbstractContextManager[None]:
    """Returns a context manager whose variables and resources live in the container `name`.

    Args:
      name: letters, digits and "_.-/", not starting with "_", "-" or "/"; "" is the default.

    Raises:
      ValueError: if it is not a container name.
    """
    return get_default_graph().container(name)


@contextmanager
def name_scope(
    name: str | None, default_name: str | None = None, values: Iterable[Any] | None = None
) -> Iterator[str]:
    """Context manager that prefixes the names of operations with `name/`. Yields the prefix.

    Args:
      name: a name that is in use becomes `name_1`; one that ends in "/" is used unchanged; None or
        "" is the root scope.
      default_name: the name if `name` is None.
      values: what the operations of the block take; the graph of the tensors among them is the
        default graph of the block.

    Raises:
      TypeError: if a name is not a string.
      ValueError: if there are values but no name, or values of several graphs.
    """
    name = default_name if name is None else name
    if not isinstance(name, str | None):
        raise TypeError(f"expected the name of a scope or None, got {name!r:.80}")
    if name is None and values is not None:
        raise ValueError("a name scope with values requires a name or a default_name")
    with graph_of_values(values) as graph, graph.name_scope(name) as prefix:
        yield prefix


@contextmanager
def graph_of_values(values: Iterable[Any] | None) -> Iterator[Graph]:
    """Context manager that makes the graph of some tensors, variables or operations the default.

    Args:
      values: those, and other values, which belong to no graph; without any of the former the
        default graph stays.

    Raises:
      ValueError: if they belong to several graphs.
    """
    of_values = ((getattr(value, "op", value), value) for value in values or ())
    first: tuple[Operation, Any] | None = None
    for op, value in of_values:
        if not isinstance(op, Operation):
            continue
        if first is not None and op.graph is not first[0].graph:
            raise ValueError(f"{value!r} and {first[1]!r} belong to different graphs")
        first = first or (op, value)
    if first is None:
        yield get_default_graph()
        return
    with first[0].graph.as_default() as graph:
        yield graph


def control_dependencies(
    inputs: Iterable[Any] | None,
) -> AbstractContextManager[None]:
    """Returns a context manager whose operations run after `inputs`: operations or tensors.

    The inputs of nested blocks add up; None discards those of outer blocks.

    Raises:
      TypeError: if an input has another type.
    """
    return get_default_graph().control_dependencies(inputs)

"""The blocks around graph code: graphs, devices, names, containers, control inputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from jflow.cluster import DeviceSpec
from jflow.context import Fallback
from jflow.graph import request, stack
from jflow.graph.graph import Graph, Operation, graphs

_CONTAINER = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\-/]*")


_GLOBAL = Fallback(Graph)
"""The default graph of threads that have no block open."""


def get_default_graph() -> Graph:
    """The graph of the innermost `with graph.as_default()` of this thread, else the global one."""
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
    """The innermost session that is the default of this thread, or None."""
    return stack.sessions.top


def device(
    name: str | DeviceSpec | Callable[[Operation], str | DeviceSpec | None] | None,
) -> AbstractContextManager[Any]:
    """A block whose operations run on a device.

    Blocks nest: fields that the inner name leaves out are the outer block's. None forgets all
    outer blocks. A function is called with each new operation of the block; what it returns
    replaces what blocks inside this one ask for (the function sees that as `operation.device`),
    and blocks outside fill in what it leaves out.

    In a function that JAX traces there are no operations yet: a device function there is called
    when the traced equations become operations of a graph, and never for those that stay inside of
    one operation, such as a loop. An eager variable is shown to it as an operation "variable".

    Args:
      name: such as "/job:ps/task:0/device:CPU:0", any part of it, "/gpu:0", a function from an
        operation to such a name or None, or None.

    Raises:
      ValueError: if it is not a device name.
      TypeError: if it is none of these.
    """
    if name is None or isinstance(name, DeviceSpec):
        block: request.Block = name
    elif isinstance(name, str):
        block = DeviceSpec.parse(name)
    elif callable(name):
        block = request.DeviceFunction(name)
    else:
        raise TypeError(
            f"a device is a name or None, or a function that gives one, got {type(name).__name__}"
        )
    return request.request_scope(request.Request((block,)))


def colocate_with(op: Any, ignore_existing: bool = False) -> AbstractContextManager[Any]:
    """A block whose operations run where another operation runs.

    Operations that are colocated, with each other or one after the other, are placed as one: what
    any of them asks for holds for all. Device blocks around this one are forgotten. Blocks add up,
    so an operation can be colocated with several.

    Args:
      op: an operation, tensor or variable; None for nothing, which forgets the blocks around.
      ignore_existing: whether to forget colocation blocks around this one.

    Raises:
      TypeError: if it is something else.
      ValueError: if it is of another graph, or None without `ignore_existing`.
    """
    if op is None and not ignore_existing:
        raise ValueError("colocate_with(None) forgets other blocks: it needs ignore_existing=True")
    names: list[str | None] = [None] if ignore_existing else []
    if op is not None:
        target = _operation(op, "colocate_with takes an operation, a tensor or a variable")
        if target.graph is not get_default_graph():
            raise ValueError(f"{target!r} belongs to another graph than the one being built")
        names.append(target.name)
    return request.request_scope(request.Request((None,), tuple(names)))


def container(name: str) -> AbstractContextManager[None]:
    """A block whose variables and other resources live in the container `name`.

    Args:
      name: letters, digits and "_.-/", not starting with "_", "-" or "/"; "" is the default one.

    Raises:
      ValueError: if it is not a container name.
    """
    if name and not _CONTAINER.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a container name: start with a letter, digit or '.', "
            "go on with letters, digits and any of '_.-/'"
        )
    return get_default_graph().scopes.replaced(container=name)


@contextmanager
def name_scope(name: str | None) -> Iterator[str]:
    """A block whose operations have names that start with `name/`.

    Opening a name again gives `name_1`; a name that ends in "/" is entered as it is; None or ""
    goes back to the root. Yields the prefix.
    """
    if not isinstance(name, str | None):
        raise TypeError(f"a name scope is a name or None, got {name!r:.80}")
    graph = get_default_graph()
    if not name:
        prefix = ""
    elif name.endswith("/"):
        prefix = name
    else:
        prefix = graph.unique_name(name) + "/"
    with graph.scopes.replaced(names=prefix):
        yield prefix


def variable_scope(name: str) -> AbstractContextManager[str]:
    """A block whose variables, and other operations, have names that start with `name/`."""
    if not isinstance(name, str):
        raise TypeError(f"a variable scope is a name, got {type(name).__name__}")
    return name_scope(name)


def control_dependencies(
    inputs: Iterable[Any] | None,
) -> AbstractContextManager[None]:
    """A block whose operations run after all of `inputs`: operations, tensors or variables.

    Blocks nest and add up; None forgets the outer ones.

    Raises:
      TypeError: if an input is something else.
    """
    scopes = get_default_graph().scopes
    if inputs is None:
        return scopes.replaced(control_inputs=())
    wanted = "a control input is an operation or a tensor"
    added = dict.fromkeys(scopes.here.control_inputs)
    added.update(dict.fromkeys(_operation(x, wanted) for x in inputs))
    return scopes.replaced(control_inputs=tuple(added))


def _operation(value: Any, wanted: str) -> Operation:
    op = value if isinstance(value, Operation) else getattr(value, "op", None)
    if not isinstance(op, Operation):
        raise TypeError(f"{wanted}, got {value!r}")
    return op

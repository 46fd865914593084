"""The blocks around graph code: graphs, devices, names, containers, control inputs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from jflow.cluster import DeviceSpec
from jflow.graph import request, stack
from jflow.graph.graph import Graph, Operation, graphs

_CONTAINER = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\-/]*")


class _GlobalGraph:
    """The graph of threads that opened none."""

    def __init__(self) -> None:
        self.graph = Graph()


_GLOBAL = _GlobalGraph()


def get_default_graph() -> Graph:
    """The graph of the innermost `with graph.as_default()` of this thread, else the global one."""
    return graphs.top or _GLOBAL.graph


def reset_default_graph() -> None:
    """Starts a new global default graph.

    Raises:
      AssertionError: inside a `with graph.as_default()` block.
    """
    if graphs.top is not None:
        raise AssertionError("reset_default_graph cannot be called inside graph.as_default()")
    _GLOBAL.graph = Graph()


def get_default_session() -> stack.Runner | None:
    """The innermost session that is the default of this thread, or None."""
    return stack.sessions.top


def device(name: str | DeviceSpec | None) -> AbstractContextManager[Any]:
    """A block whose operations run on a device.

    Blocks nest: fields that the inner name leaves out are the outer block's. None forgets all
    outer blocks.

    Args:
      name: such as "/job:ps/task:0/device:CPU:0", any part of it, "/gpu:0", or None.

    Raises:
      ValueError: if it is not a device name.
    """
    if name is None:
        return request.asking_for_nothing()
    if not isinstance(name, str | DeviceSpec):
        raise TypeError(f"a device is a name or None, got {type(name).__name__}")
    return request.asking_for(DeviceSpec.parse(name) if isinstance(name, str) else name)


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
    added = dict.fromkeys(scopes.control_inputs)
    added.update(dict.fromkeys(_operation(x) for x in inputs))
    return scopes.replaced(control_inputs=tuple(added))


def _operation(value: Any) -> Operation:
    op = value if isinstance(value, Operation) else getattr(value, "op", None)
    if not isinstance(op, Operation):
        raise TypeError(f"a control input is an operation or a tensor, got {value!r}")
    return op

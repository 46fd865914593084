"""Context managers that set the graph, device, name, container and control inputs."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ContextDecorator, ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import jax
from jax.sharding import AbstractMesh, Mesh

from jflow.base.cards import Card, Carded
from jflow.base.cluster import MESH, DeviceSpec
from jflow.base.context import Fallback
from jflow.compiler.graph import request, stack
from jflow.compiler.graph.graph import Graph, Operation, graphs
from jflow.errors import UnimplementedError
from jflow.plan import MAX_WINDOW
from jflow.plan.xla.hardware import NO_MESH, in_mesh, mesh_of_axes

_AXIS_OF_PMAP = "_internal_pmap_axis_name"
_CONTAINER = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\-/]*")


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


def device(
    name: str | DeviceSpec | Callable[[Operation], str | DeviceSpec | None] | None = "",
    mesh: Mapping[str, int] | Mesh | AbstractMesh | None = None,
) -> AbstractContextManager[Any]:
    """Returns a context manager whose operations request a device.

    Blocks nest: fields that the inner name omits come from the outer block. None discards all
    outer blocks. A function is called with each new operation in the block. Its result replaces
    the request of blocks inside (which it sees as `operation.device`), and outer blocks fill in
    fields that it omits.

    In a function that JAX traces there are no operations yet. A device function is then called
    when the traced equations become operations of a graph, but not for equations inside of one
    operation, such as a loop. It sees an eager variable as an operation "variable".

    With a mesh the operations run on several devices of one task together. In the block the axes
    are those of JAX's current mesh, as within `jax.sharding.use_abstract_mesh`: `jax.shard_map`,
    shardings and collectives name them. No device of this process is needed. Meshes of n devices
    do not overlap: "/job:worker/task:0/device:MESH:1" with a mesh of two devices means the third
    and fourth device of the task; without an index it means the first two.

    Args:
      name: a name such as "/job:ps/task:0/device:CPU:0", any part of it, or "/gpu:0"; a function
        from an operation to such a name or None; or None.
      mesh: the names of the axes of a mesh, with their sizes, or a mesh of JAX, whose shape and
        names count; None for one device. Code that names a mesh of JAX itself needs the same one
        here.

    Raises:
      ValueError: if it is not a device name, or a mesh has no axes.
      TypeError: if it has another type, or a mesh is given for a function or None.
    """
    if mesh is not None:
        return _mesh_scope(name, mesh)
    if name is None or isinstance(name, DeviceSpec):
        block: request.Block = name
    elif isinstance(name, str):
        block = DeviceSpec.parse(name)
    elif callable(name):
        block = request.DeviceFunction(name)
    else:
        raise TypeError(
            f"expected a device name, a function that returns one, or None, "
            f"got {type(name).__name__}"
        )
    return device_scope(block)


def _mesh_scope(
    name: object, mesh: Mapping[str, int] | Mesh | AbstractMesh
) -> AbstractContextManager[Any]:
    """Returns the context manager of a device block with a mesh."""
    spec = DeviceSpec.parse(name) if isinstance(name, str) else name
    if not isinstance(spec, DeviceSpec):
        raise TypeError(f"expected a device name with a mesh, got {type(name).__name__}")
    if isinstance(mesh, Mesh | AbstractMesh):
        # JAX compares it with the meshes that code in the block names.
        abstract: AbstractMesh | None = mesh.abstract_mesh
        axes: Any = tuple(mesh.shape.items())
    elif isinstance(mesh, Mapping):
        axes, abstract = tuple(mesh.items()), None
    else:
        raise TypeError(
            f"expected a mesh as the sizes of its axes by their names, or as a mesh of JAX, got "
            f"{type(mesh).__name__}"
        )
    return device_scope(replace(spec, type=spec.type or MESH, axes=axes), abstract)


@contextmanager
def device_scope(block: request.Block, mesh: AbstractMesh | None = None) -> Iterator[None]:
    """Context manager of a device block: a request, and the mesh of JAX that it means.

    Another device inside of the block of a mesh means that there is no mesh any more.
    """
    if mesh is None:
        axes = block.axes if isinstance(block, DeviceSpec) else None
        mesh = mesh_of_axes(axes) if axes else NO_MESH
    is_other = block is None or (isinstance(block, DeviceSpec) and block.type is not None)
    with ExitStack() as scopes:
        scopes.enter_context(request.request_scope(request.Request((block,))))
        if is_other and not (mesh.empty and jax.sharding.get_abstract_mesh().empty):
            scopes.enter_context(in_mesh(mesh))
        try:
            yield
        except ValueError as error:
            if _AXIS_OF_PMAP not in str(error):
                raise
            raise UnimplementedError(
                "jax.pmap names the devices of one process, and so cannot run on a mesh of jflow; "
                "use jax.shard_map, or write shardings"
            ) from error


def loop(*, window: int) -> AbstractContextManager[Any]:
    """Returns a context manager in which loops over devices have a window.

    It holds for loops of `jax.lax` whose bodies request several devices; others are not changed by
    it. On each device at most `window` iterations are under way, so it keeps the
    values of so many: a larger window hides more latency, a smaller one needs less memory. By
    default it is twice the number of the loop's devices, at least two more than that number.

    Args:
      window: from 1, one iteration after another, to `MAX_WINDOW`, 4096.

    Raises:
      ValueError: if it is out of that range.
      TypeError: if it is not an int.
    """
    if type(window) is not int:
        raise TypeError(f"expected a window as an int, got {type(window).__name__}")
    if not 1 <= window <= MAX_WINDOW:
        raise ValueError(f"expected a window from 1 to {MAX_WINDOW}, got {window}")
    return request.request_scope(request.Request(window=window))


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
    if op is None and not ignore_existing:
        raise ValueError("colocate_with(None) requires ignore_existing=True")
    names: list[str | None] = [None] if ignore_existing else []
    if op is not None:
        target = _operation(op, "colocate_with requires an operation, a tensor or a variable")
        if target.graph is not get_default_graph():
            raise ValueError(f"{target!r} belongs to another graph than the one being built")
        names.append(target.name)
    return request.request_scope(request.Request((None,), tuple(names)))


class _Entered(threading.local):
    """The entries of a context manager on this thread that were not exited."""

    def __init__(self) -> None:
        self.stacks: list[ExitStack] = []


class _ContainerScope(Carded, ContextDecorator, AbstractContextManager[None]):
    """The context manager that `container` returns; it may be entered again, and on any thread."""

    def __init__(self, scopes: stack.Scopes, name: str) -> None:
        self._scopes = scopes
        self._name = name
        self._entered = _Entered()

    def __enter__(self) -> None:
        entered = ExitStack()
        entered.enter_context(self._scopes.replaced(container=self._name))
        self._entered.stacks.append(entered)

    def __exit__(self, *error: object) -> None:
        self._entered.stacks.pop().close()

    def __repr__(self) -> str:
        return f"<jflow.container {self._name!r}>"

    def _card(self) -> Card:
        name = self._name or "the default container"
        note = "State that is made in its with block lives there, and outlives the session."
        return Card("container", name, note=note)


def container(name: str) -> AbstractContextManager[None]:
    """Returns a context manager whose variables and resources live in the container `name`.

    Args:
      name: letters, digits and "_.-/", not starting with "_", "-" or "/"; "" is the default.

    Raises:
      ValueError: if it is not a container name.
    """
    if name and not _CONTAINER.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a container name: expected a letter, digit or '.', "
            "then letters, digits and any of '_.-/'"
        )
    return _ContainerScope(get_default_graph().scopes, name)


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
    with graph_of_values(values) as graph:
        if not name:
            prefix = ""
        elif name.endswith("/"):
            prefix = name
        else:
            prefix = graph.unique_name(name) + "/"
        with graph.scopes.replaced(names=prefix):
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
    scopes = get_default_graph().scopes
    if inputs is None:
        return scopes.replaced(control_inputs=())
    wanted = "a control input must be an operation or a tensor"
    added = dict.fromkeys(scopes.here.control_inputs)
    added.update(dict.fromkeys(_operation(x, wanted) for x in inputs))
    return scopes.replaced(control_inputs=tuple(added))


def _operation(value: Any, wanted: str) -> Operation:
    op = value if isinstance(value, Operation) else getattr(value, "op", None)
    if not isinstance(op, Operation):
        raise TypeError(f"{wanted}, got {value!r}")
    return op

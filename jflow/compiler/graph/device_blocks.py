"""`device` and `loop`: what blocks request of the operations in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import jax
from jax.sharding import AbstractMesh, Mesh

from jflow.base.cluster import MESH, DeviceSpec
from jflow.compiler.graph import request
from jflow.errors import UnimplementedError
from jflow.plan import MAX_WINDOW
from jflow.plan.xla.hardware import NO_MESH, in_mesh, mesh_of_axes

_AXIS_OF_PMAP = "_internal_pmap_axis_name"


def device(
    name: str | DeviceSpec | Callable[[Any], str | DeviceSpec | None] | None = "",
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

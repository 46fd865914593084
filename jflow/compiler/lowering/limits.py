"""Checks XLA's requirements of operations: one mesh, limited size and depth, no callbacks.

JAX puts concrete devices into the parameters of equations. Placement decides where an operation
runs, so a mesh counts by its shape and the names of its axes: it becomes an abstract mesh, which
JAX accepts on every device. On a mesh an operation may have that mesh only, on a device one of one
device. What no server compiles is refused, too, with the user's line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.extend.core as jex
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec, Sharding

from jflow.base.cluster import Axes
from jflow.base.values import is_known
from jflow.compiler.graph import Operation, origin, request
from jflow.compiler.graph.callbacks import callbacks_inside, has_callback
from jflow.errors import InvalidArgumentError, UnimplementedError
from jflow.plan.xla import internals, jaxprs
from jflow.plan.xla.hardware import NO_MESH, mesh_of_axes
from jflow.plan.xla.modules import MAX_BYTES, MAX_DEPTH

_ONE = NamedSharding(AbstractMesh((1,), ("one",)), PartitionSpec())


def without_devices(op: Operation, axes: Axes = ()) -> jex.JaxprEqn:
    """Returns the equation of an operation without concrete devices.

    Args:
      op: the operation.
      axes: those of the mesh that it runs on; empty for one device.

    Raises:
      InvalidArgumentError: if it, or an equation inside of it, requires another mesh.
    """
    if not _names_devices(op.eqn):
        return op.eqn
    abstract = _Abstract(axes)

    def change(eqn: jex.JaxprEqn) -> jex.JaxprEqn:
        try:
            eqn = abstract.around(eqn)
            params = {key: abstract.param(key, value) for key, value in eqn.params.items()}
        except _OtherMeshError as error:
            raise InvalidArgumentError(
                f"operation {op.name!r}: {eqn.primitive.name!r} "
                f"(at {origin.line_of(eqn) or op.origin}) requires {error.args[0]}, but it runs on "
                f"{_mesh_text(axes)}",
                op=op.name,
            ) from None
        return eqn.replace(params=params)  # type: ignore[no-any-return]

    return jaxprs.Rewriting(change).eqn(op.eqn)


def mesh_required(eqn: jex.JaxprEqn) -> str | None:
    """Returns the mesh that an equation, or one inside of it, requires; None if it is of no use.

    It is of no use if it is only around equations; see `_Abstract.around`.
    """
    abstract = _Abstract(())

    def change(inner: jex.JaxprEqn) -> jex.JaxprEqn:
        for key, value in abstract.around(inner).params.items():
            abstract.param(key, value)
        return inner

    try:
        jaxprs.Rewriting(change).eqn(eqn)
    except _OtherMeshError as error:
        return str(error.args[0])
    return None


class _OtherMeshError(Exception):
    """Raised if an equation has another mesh than that of its device; holds its description."""


def _mesh_text(axes: Axes) -> str:
    if not axes:
        return (
            'one device; request the mesh by jflow.device("/job:NAME/task:N", '
            "mesh={AXIS: SIZE, ...})"
        )
    return f"a mesh with the axes {_axes_text(axes)}"


def _axes_text(axes: Axes) -> str:
    return ", ".join(f"{name}={size}" for name, size in axes)


def _names_devices(eqn: jex.JaxprEqn) -> bool:
    if not internals.mesh_around(eqn).empty or any(map(_is_placed, eqn.params.values())):
        return True
    bodies = jex.jaxprs_in_params(eqn.params)
    return any(_names_devices(inner) for body in bodies for inner in body.eqns)


def _is_placed(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(map(_is_placed, value))
    return isinstance(value, Sharding) or (
        isinstance(value, Mesh | AbstractMesh) and not value.empty
    )


@dataclass(frozen=True)
class _Abstract:
    """Replaces meshes in parameters by abstract ones, which must have the axes of the device."""

    axes: Axes

    @cached_property
    def mesh(self) -> AbstractMesh:
        return mesh_of_axes(self.axes) if self.axes else NO_MESH

    def around(self, eqn: jex.JaxprEqn) -> jex.JaxprEqn:
        """Returns the equation in the mesh of the device.

        One that is on no axis by itself may be moved: JAX has read from the mesh around it what its
        shardings mean, and does not use it any more.
        """
        mesh = internals.mesh_around(eqn)
        if mesh.empty:
            return eqn
        is_movable = mesh.size > 1 and _is_automatic(mesh)
        if not is_movable:
            self.check(mesh)
        here = self.mesh if is_movable else _without_kind(mesh)
        return eqn if mesh == here else request.on_mesh(eqn, here)

    def param(self, key: str, value: Any) -> Any:
        """Returns a parameter of an equation with the mesh of the device."""
        is_around = key in _MESHES_AROUND and value.size > 1 and _is_automatic(value)
        return self.mesh if is_around else self.of(value)

    def of(self, value: Any) -> Any:
        if type(value) in (tuple, list):
            return type(value)(map(self.of, value))
        if isinstance(value, NamedSharding):
            if _says_nothing(value):
                return NamedSharding(self.mesh, value.spec)
            self.check(value.mesh)
            mesh = _without_kind(value.mesh)
            return NamedSharding(mesh, value.spec, memory_kind=value.memory_kind)
        if isinstance(value, Sharding):
            return self._other(value)
        if isinstance(value, Mesh | AbstractMesh) and not value.empty:
            self.check(value)
            return _without_kind(value)
        return value

    def _other(self, sharding: Sharding) -> Sharding:
        """Returns a sharding that replaces one that names devices, but no axes."""
        if sharding.num_devices > 1:
            raise _OtherMeshError(f"the sharding {sharding}, which names no axes")
        return NamedSharding(mesh_of_axes(self.axes), PartitionSpec()) if self.axes else _ONE

    def check(self, mesh: Mesh | AbstractMesh) -> None:
        """Checks that a mesh is that of the device; without axes it is of one device only."""
        axes = tuple(mesh.shape.items())
        if mesh.empty or axes == self.axes or (mesh.size == 1 and not self.axes):
            return
        raise _OtherMeshError(f"a mesh with the axes {_axes_text(axes)}")


_MESHES_AROUND = frozenset({"ctx_mesh", "context_mesh"})
"""Parameters that repeat the mesh around an equation."""


def _is_automatic(mesh: Mesh | AbstractMesh) -> bool:
    return all(kind == AxisType.Auto for kind in mesh.axis_types)


def _says_nothing(sharding: NamedSharding) -> bool:
    """Whether a sharding only repeats the mesh around an equation, and names none of its axes."""
    is_plain = sharding.memory_kind is None and isinstance(sharding.mesh, AbstractMesh)
    return is_plain and _is_automatic(sharding.mesh) and not any(sharding.spec)


def _without_kind(mesh: Mesh | AbstractMesh) -> AbstractMesh:
    """Returns a mesh without devices, not even what kind they are of."""
    return AbstractMesh(mesh.axis_sizes, mesh.axis_names, axis_types=mesh.axis_types)


def check_limits(op: Operation) -> None:
    """Refuses an operation with values too large, or branches and loops too deep, for XLA.

    XLA aborts the process that compiles it.

    Raises:
      InvalidArgumentError: with the operation and the line of the equation.
    """
    _Limits(op).check(op.eqn, 0)


class _Limits:
    """The check of one operation; visits each nested jaxpr once per depth."""

    def __init__(self, op: Operation) -> None:
        self._op = op
        self._checked: dict[int, int] = {}

    def check(self, eqn: jex.JaxprEqn, depth: int) -> None:
        for var in eqn.outvars:
            if _is_too_large(var.aval):
                raise self._error(
                    eqn, f"gives {var.aval}, expected at most 2**{MAX_BYTES.bit_length() - 1} bytes"
                )
        for body in jex.jaxprs_in_params(eqn.params):
            if self._checked.get(id(body), -1) >= depth:
                continue
            if depth >= MAX_DEPTH:
                raise self._error(
                    eqn,
                    f"is inside of {depth} branches, loops and calls, which is too deep for XLA; "
                    "write what repeats as a loop (jax.lax.fori_loop, jax.lax.scan)",
                )
            self._checked[id(body)] = depth
            for inner in body.eqns:
                self.check(inner, depth + 1)

    def _error(self, eqn: jex.JaxprEqn, what: str) -> InvalidArgumentError:
        op = self._op
        line = origin.line_of(eqn) or origin.line_of(op.eqn) or op.origin
        return InvalidArgumentError(
            f"operation {op.name!r}: {eqn.primitive.name!r} (at {line}) {what}", op=op.name
        )


def _is_too_large(aval: Any) -> bool:
    shape, dtype = getattr(aval, "shape", None), getattr(aval, "dtype", None)
    if not shape or dtype is None:
        return False
    n_bytes = dtype.itemsize if isinstance(dtype, np.dtype) else 1
    n_elements: int = math.prod(n for n in shape if is_known(n) and n)
    return n_elements * n_bytes > MAX_BYTES


def refuse_callbacks(ops: Iterable[Operation]) -> None:
    """Refuses operations that call Python functions from inside an XLA program.

    Raises:
      UnimplementedError: with the operation, the line of the call, and a remedy.
    """
    for op in ops:
        if has_callback(op.eqn):
            inner = next(callbacks_inside(op.eqn))
            # JAX batches some callbacks in frames of its own.
            line = origin.line_of(inner) or origin.line_of(op.eqn) or op.origin
            raise UnimplementedError(
                f"{op.name!r} is a {op.type!r} that contains a {inner.primitive.name!r} (at "
                f"{line}); it runs on a server as one XLA program, which cannot "
                "call a Python function of the client; return the value and call the function "
                "after it, use a local session, or set EQX_ON_ERROR=nan if it is a check of "
                "Equinox",
                op=op.name,
            )

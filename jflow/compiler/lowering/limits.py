"""Checks XLA's requirements of operations: one device, limited size and depth, no callbacks.

JAX puts concrete devices into the parameters of equations. Placement decides where an operation
runs, so a mesh of one device becomes an abstract mesh, which JAX accepts on every device. A mesh of
several devices is refused, because an operation of a graph runs on one device. So is what no server
compiles, with the user's line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import jax.extend.core as jex
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec, Sharding

from jflow.base.values import is_known
from jflow.compiler.graph import Operation, origin
from jflow.compiler.graph.callbacks import callbacks_inside, has_callback
from jflow.errors import InvalidArgumentError, UnimplementedError
from jflow.plan.xla import internals, jaxprs
from jflow.plan.xla.modules import MAX_BYTES, MAX_DEPTH

_ONE = NamedSharding(AbstractMesh((1,), ("one",)), PartitionSpec())


def without_devices(op: Operation) -> jex.JaxprEqn:
    """Returns the equation of an operation without concrete devices.

    Raises:
      UnimplementedError: if it, or an equation inside of it, requires several devices.
    """
    if not _names_devices(op.eqn):
        return op.eqn

    def change(eqn: jex.JaxprEqn) -> jex.JaxprEqn:
        try:
            _check_size(internals.mesh_around(eqn).size)
            params = {key: _abstract(value) for key, value in eqn.params.items()}
        except _SeveralError as error:
            raise UnimplementedError(
                f"operation {op.name!r}: {eqn.primitive.name!r} "
                f"(at {origin.line_of(eqn) or op.origin}) requires {error.args[0]} devices, but "
                "an operation of a graph runs on one device; use a mesh of one device, or divide "
                "the work among devices with jflow.device blocks",
                op=op.name,
            ) from None
        return eqn.replace(params=params)  # type: ignore[no-any-return]

    return jaxprs.Rewriting(change).eqn(op.eqn)


class _SeveralError(Exception):
    """Raised if an equation has several devices where one is expected; holds their number."""


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


def _abstract(value: Any) -> Any:
    if type(value) in (tuple, list):
        return type(value)(map(_abstract, value))
    if isinstance(value, Sharding):
        _check_size(value.num_devices)
        if not isinstance(value, NamedSharding):
            return _ONE
        return NamedSharding(value.mesh.abstract_mesh, value.spec, memory_kind=value.memory_kind)
    if isinstance(value, Mesh | AbstractMesh) and not value.empty:
        _check_size(value.size)
        return value.abstract_mesh
    return value


def _check_size(n_devices: int) -> None:
    if n_devices > 1:
        raise _SeveralError(n_devices)


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

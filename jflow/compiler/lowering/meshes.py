"""Replacement of concrete devices in equations by abstract meshes.

JAX puts concrete devices into the parameters of equations. Placement decides where an operation
runs, so a mesh of one device becomes an abstract mesh, which JAX accepts on every device. A mesh of
several devices is refused, because an operation of a graph runs on one device.
"""

from __future__ import annotations

from typing import Any

import jax.extend.core as jex
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec, Sharding

from jflow.compiler.graph import Operation, origin
from jflow.errors import UnimplementedError
from jflow.plan.xla import internals, jaxprs

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
    """Raised where one device is expected, with the number of devices."""


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

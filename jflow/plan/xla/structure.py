"""`structure_of`: a key of what a program computes; equal keys mean equal programs.

Variables count in the order in which they appear, so two programs that were traced at different
times have one key. Nothing is compared loosely: what is not known here is equal to itself only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from jflow.base.values import Array, raw_bytes, type_name
from jflow.plan.xla import internals

_RULES = frozenset({"jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd", "out_trees"})
"""Parameters of equations that are for derivatives only, and are made anew by each trace."""


def structure_of(program: jex.ClosedJaxpr) -> Hashable:
    """Returns a key of a program whose equations carry no source information."""
    return _Walk().closed(program)


class _Walk:
    """Computes the keys of one program: of its jaxprs, equations, variables and parameters."""

    def __init__(self) -> None:
        self._variables: dict[Any, int] = {}
        self._jaxprs: dict[int, int] = {}

    def closed(self, closed: jex.ClosedJaxpr) -> Hashable:
        return self._jaxpr(closed.jaxpr), self._sequence(closed.consts)

    def _jaxpr(self, jaxpr: jex.Jaxpr) -> Hashable:
        """Returns the key of a jaxpr, or just its number if it was seen before."""
        number = self._jaxprs.get(id(jaxpr))
        if number is not None:
            return number
        self._jaxprs[id(jaxpr)] = len(self._jaxprs)
        return (
            tuple(map(self._bound, jaxpr.constvars)),
            tuple(map(self._bound, jaxpr.invars)),
            tuple(map(self._eqn, jaxpr.eqns)),
            tuple(map(self._atom, jaxpr.outvars)),
        )

    def _eqn(self, eqn: jex.JaxprEqn) -> Hashable:
        return (
            eqn.primitive,
            tuple(map(self._atom, eqn.invars)),
            tuple(
                (name, self._value(value))
                for name, value in sorted(eqn.params.items())
                if name not in _RULES
            ),
            _Same(eqn.ctx),  # JAX has one object for equal contexts
            tuple(map(self._bound, eqn.outvars)),
        )

    def _bound(self, variable: jex.Var) -> Hashable:
        return self._variables.setdefault(variable, len(self._variables)), variable.aval

    def _atom(self, atom: Any) -> Hashable:
        if isinstance(atom, jex.Literal):
            return atom.aval, _array(np.asarray(atom.val))
        return self._variables[atom]

    def _sequence(self, values: Sequence[Any]) -> Hashable:
        return tuple(map(self._value, values))

    def _value(self, value: Any) -> Hashable:
        """Returns the key of a parameter or constant."""
        kind = type(value)
        if (make := _KEYS.get(kind)) is not None:
            return kind, make(value)
        if isinstance(value, jex.ClosedJaxpr):
            return self.closed(value)
        if isinstance(value, jex.Jaxpr):
            return self._jaxpr(value)
        if internals.is_structure(value):
            return _itself(value)
        if (parts := _parts(value)) is not None:
            return kind, self._sequence(parts)
        is_array = isinstance(value, np.ndarray | np.generic | jax.Array)
        is_plain = is_array and isinstance(value.dtype, np.dtype)
        return _array(np.asarray(value)) if is_plain else _Same(value)


class _Same:
    """Compares an object by identity; keeps it alive, so that its id is not reused."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other._value is self._value

    def __hash__(self) -> int:
        return id(self._value)


def _parts(value: Any) -> Sequence[Any] | None:
    """Returns the elements of a collection or fields of a dataclass; None if it is neither."""
    if isinstance(value, tuple | list):
        return value
    if isinstance(value, Mapping):
        return [*value.items()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return None


def _array(value: Array) -> Hashable:
    return type_name(value), value.shape, raw_bytes(value).tobytes()


def _itself(value: Any) -> Hashable:
    key: Hashable = value
    return key


_KEYS: Mapping[type, Callable[[Any], Hashable]] = {
    **dict.fromkeys((type(None), bool, int, str, bytes, jax.core.ShapedArray), _itself),
    **dict.fromkeys((AbstractMesh, NamedSharding, PartitionSpec), _itself),
    **dict.fromkeys((float, complex), repr),  # 0.0 is equal to -0.0, and NaN to nothing
}
"""How values of a type are compared."""

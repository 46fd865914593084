"""Moves constants of closures to the device of the variable that they are written to.

`v.assign_add(1.0)` on a worker computes a constant, which would be sent to the parameter server
with every step. A few numbers that depend on nothing, and that only accesses to variables of one
device use, are computed there. A step that then needs nothing of the worker costs one message.
"""

from __future__ import annotations

from typing import Any

import jax.extend.core as jex

from jflow.base.cluster import DeviceSpec
from jflow.compiler.graph.primitives import ACCESSES, SOURCES, state_of
from jflow.compiler.graph.request import replaced, requested, resolved

_LARGEST = 1024
"""The most elements of a constant that is moved; the worker has more time for larger ones."""


def with_local_constants(jaxpr: jex.ClosedJaxpr) -> jex.ClosedJaxpr:
    """Returns a traced function whose small constants request the device of their variable.

    Args:
      jaxpr: equations whose accesses to variables are at the top level.
    """
    eqns = list(jaxpr.jaxpr.eqns)
    constants = _constants(eqns)
    wanted: dict[Any, set[DeviceSpec | None]] = {
        var: {None} for var in jaxpr.jaxpr.outvars if isinstance(var, jex.Var)
    }
    for i in reversed(range(len(eqns))):
        eqn = eqns[i]
        device = None
        if i in constants:
            users = {spec for var in eqn.outvars for spec in wanted.get(var, ())}
            device = users.pop() if len(users) == 1 else None
            if device is not None:
                eqns[i] = replaced(eqn, resolved(device, ()))
        elif eqn.primitive in ACCESSES:
            device = _device_of(eqn)
        for var in eqn.invars:
            if isinstance(var, jex.Var):
                wanted.setdefault(var, set()).add(device)
    moved: jex.ClosedJaxpr = jaxpr.replace(jaxpr=jaxpr.jaxpr.replace(eqns=eqns))
    return moved


def _constants(eqns: list[jex.JaxprEqn]) -> set[int]:
    """The positions of equations that compute small constants."""
    places: set[int] = set()
    known: set[Any] = set()
    for i, eqn in enumerate(eqns):
        is_free = all(isinstance(x, jex.Literal) or x in known for x in eqn.invars)
        is_plain = not eqn.effects and eqn.primitive not in SOURCES and requested(eqn).is_empty
        if is_free and is_plain and all(map(_is_small, eqn.outvars)):
            places.add(i)
            known.update(eqn.outvars)
    return places


def _is_small(var: Any) -> bool:
    return bool(var.aval.size <= _LARGEST)


def _device_of(eqn: jex.JaxprEqn) -> DeviceSpec | None:
    """The device of the variable that an equation accesses, if that is one device."""
    specs = {ref.spec for ref in state_of(eqn)}
    spec = specs.pop() if len(specs) == 1 else None
    return spec if spec is not None and spec.task is not None else None

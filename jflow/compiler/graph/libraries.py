"""Primitives that libraries define by Python functions, such as Lineax's `linear_solve`.

JAX traces the implementation of such a primitive when it lowers it. Its equations are therefore
found by tracing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import partial
from typing import Any

import jax
import jax.extend.core as jex

from jflow.plan.xla.jaxprs import shape_of

_MAX_KEPT = 256
_PACKAGES = ("jax", "jaxlib", "jflow")


_Program = tuple[jex.JaxprEqn, jex.ClosedJaxpr | None]


class _Kept:
    """LRU cache of programs by the id of their equation, which is kept alive with them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._programs: OrderedDict[int, _Program] = OrderedDict()

    def get(self, eqn: jex.JaxprEqn) -> jex.ClosedJaxpr | None:
        with self._lock:
            known = self._programs.get(id(eqn))
        if known is not None:
            return known[1]
        program = _traced(eqn)
        with self._lock:
            self._programs[id(eqn)] = eqn, program
            if len(self._programs) > _MAX_KEPT:
                self._programs.popitem(last=False)
        return program


_KEPT = _Kept()


def program_of(eqn: jex.JaxprEqn) -> jex.ClosedJaxpr | None:
    """Returns the program of a library's primitive; None for JAX's own or if tracing fails."""
    return _KEPT.get(eqn) if _is_of_library(eqn.primitive) else None


def _is_of_library(primitive: jex.Primitive) -> bool:
    implementation: Any = primitive.impl
    while isinstance(implementation, partial):
        implementation = implementation.func
    module = getattr(implementation, "__module__", None) or "jax"
    return module.partition(".")[0] not in _PACKAGES


def _traced(eqn: jex.JaxprEqn) -> jex.ClosedJaxpr | None:
    def call(*args: Any) -> Any:
        results = eqn.primitive.impl(*args, **eqn.params)
        return results if eqn.primitive.multiple_results else (results,)

    try:
        with eqn.ctx.manager:
            program = jax.make_jaxpr(call)(*(shape_of(var.aval) for var in eqn.invars))
    except Exception:  # library code that may require concrete values
        return None
    return program if len(program.out_avals) == len(eqn.outvars) else None

"""Primitives that libraries define by Python functions, such as Lineax's `linear_solve`.

JAX traces the implementation of such a primitive when it lowers it. Its equations are therefore
found by tracing.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import jax
import jax.extend.core as jex

from jflow.plan.xla.jaxprs import shape_of

_MAX_KEPT = 256
_PACKAGES = ("jax", "jaxlib", "jflow")


def program_of(eqn: jex.JaxprEqn) -> jex.ClosedJaxpr | None:
    """Returns the program of a library's primitive; None for JAX's own or if tracing fails."""
    return _traced(eqn) if _is_of_library(eqn.primitive) else None


def _is_of_library(primitive: jex.Primitive) -> bool:
    implementation: Any = primitive.impl
    while isinstance(implementation, partial):
        implementation = implementation.func
    module = getattr(implementation, "__module__", None) or "jax"
    return module.partition(".")[0] not in _PACKAGES


@lru_cache(_MAX_KEPT)
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

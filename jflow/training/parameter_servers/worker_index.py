"""The index of the worker that runs a scheduled function."""

from __future__ import annotations

from typing import Any, NoReturn

import jax
import jax.extend.core as jex
import numpy as np
from jax.interpreters import mlir

from jflow.plan.xla import internals

_REFUSED = (
    "the index of the worker is known only in functions that a coordinator schedules; ask for it "
    "there, outside of loops, branches and other nested functions of JAX"
)

worker_index_p = jex.Primitive("worker_index")
"""() → int32[]; a value when the function is bound to a worker."""


def experimental_get_current_worker_index() -> jax.Array:
    """Returns the index of the worker that runs the function, int32[].

    It is for functions that a `ClusterCoordinator` schedules.

    Raises:
      RuntimeError: elsewhere.
    """
    if not internals.is_tracing():
        _refuse()
    index: jax.Array = worker_index_p.bind()
    return index


def with_index(jaxpr: jex.ClosedJaxpr, index: int) -> jex.ClosedJaxpr:
    """Returns a traced function with the index of one worker.

    Args:
      jaxpr: equations that ask for the index at the top level.
      index: the index.
    """
    uses = [eqn for eqn in jaxpr.eqns if eqn.primitive is worker_index_p]
    if not uses:
        return jaxpr
    values = [*jaxpr.jaxpr.constvars, *(var for eqn in uses for var in eqn.outvars)]
    eqns = [eqn for eqn in jaxpr.eqns if eqn.primitive is not worker_index_p]
    bound: jex.ClosedJaxpr = jaxpr.replace(
        jaxpr=jaxpr.jaxpr.replace(constvars=values, eqns=eqns),
        consts=[*jaxpr.consts, *[np.int32(index)] * len(uses)],
    )
    return bound


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError(_REFUSED)


worker_index_p.def_abstract_eval(lambda: jax.core.ShapedArray((), np.int32))
worker_index_p.def_impl(_refuse)
mlir.register_lowering(worker_index_p, _refuse)

"""Programs with types of 64 bits, in a process whose setting `jax_enable_x64` is off.

A block `jax.enable_x64(True)` in a function makes equations of 64 bits. They have their types, and
yet JAX lowers, compiles and calls them rightly only where the setting allows these types.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np

from jflow.base.values import is_switched_off

_DOUBLE = np.dtype("float64")


def needs_64_bits(jaxpr: jex.Jaxpr) -> bool:
    """Whether a program has types of 64 bits that the setting of this thread does not allow."""
    return is_switched_off(_DOUBLE) and _is_wide(jaxpr, set())


def _is_wide(jaxpr: jex.Jaxpr, seen: set[int]) -> bool:
    if id(jaxpr) in seen:
        return False
    seen.add(id(jaxpr))
    return (
        are_wide(var.aval for var in (*jaxpr.invars, *jaxpr.constvars))
        or any(are_wide(var.aval for var in eqn.outvars) for eqn in jaxpr.eqns)
        or any(
            _is_wide(getattr(body, "jaxpr", body), seen)
            for eqn in jaxpr.eqns
            for body in jex.jaxprs_in_params(eqn.params)
        )
    )


def are_wide(avals: Iterable[Any]) -> bool:
    """Whether some abstract values have types that the setting of this thread does not allow."""
    return any(is_switched_off(getattr(aval, "dtype", None)) for aval in avals)


def allowing(is_needed: bool) -> AbstractContextManager[Any]:
    """Returns a block in which this thread allows 64 bits, or one that changes nothing."""
    block: AbstractContextManager[Any] = jax.enable_x64(True) if is_needed else nullcontext()
    return block

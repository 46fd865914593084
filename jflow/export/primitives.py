"""JAX's primitives by name: those of `jax.extend.core.primitives`, and a few that it lacks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from jflow.graph import ResourceRef, VariableRef
from jflow.graph.primitives import (
    ACCESSES,
    HANDLES,
    SOURCES,
    constant_p,
    group_p,
    host_p,
    update_p,
)
from jflow.values import unknown_dim


def _named() -> dict[str, jex.Primitive]:
    found = (value for value in vars(jex.primitives).values() if isinstance(value, jex.Primitive))
    return {primitive.name: primitive for primitive in found}


def _traced(fun: Callable[..., Any], *args: Any) -> list[jex.JaxprEqn]:
    return list(jax.make_jaxpr(fun)(*args).eqns)


@cache
def primitives() -> dict[str, jex.Primitive]:
    """The primitives that a file may name."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    scalar = jax.ShapeDtypeStruct((2,), jnp.float32)
    eqns = [
        *_traced(lambda x: x.at[0].subtract(1.0), scalar),
        *_traced(lambda x: jax.lax.split(x, (1, 1)), scalar),
        *_traced(lambda x: jnp.asarray(x.shape[0]), jax.ShapeDtypeStruct((unknown_dim(),), bool)),
        *_traced(jax.random.clone, key),
        *_traced(jax.random.key_data, key),
    ]
    missing = ("dim_as_value", "scatter-sub", "split", "random_clone", "random_unwrap")
    return {eqn.primitive.name: eqn.primitive for eqn in eqns if eqn.primitive.name in missing} | (
        _named()
    )


OWN: dict[str, jex.Primitive] = {
    primitive.name: primitive for primitive in (*SOURCES, *HANDLES, group_p)
}
"""jflow's own primitives, except for calls of the client's Python functions."""


def check_params(primitive: jex.Primitive, params: dict[str, Any]) -> None:
    """Checks the parameters of one of jflow's primitives.

    Raises:
      TypeError: if one is missing, unknown or of another type.
    """
    wanted: dict[str, Any] = {}
    optional: dict[str, Any] = {"line": str}
    if primitive in ACCESSES:
        wanted = {"variable": VariableRef}
        if primitive is update_p:
            wanted["body"] = jex.ClosedJaxpr
            optional["is_guarded"] = bool
    elif primitive is constant_p:
        wanted = {"value": np.ndarray, "on_host": bool}
    elif primitive is host_p:
        wanted = {"function": str, "attributes": bytes, "resources": tuple, "is_blocking": bool}
        optional["outputs"] = tuple
    for name, value in params.items():
        kind = wanted.get(name, optional.get(name))
        if kind is None or not isinstance(value, kind):
            raise TypeError(f"{primitive.name} does not take {name}={value!r:.80}")
    missing = wanted.keys() - params.keys()
    if missing:
        raise TypeError(f"{primitive.name} needs {', '.join(sorted(missing))}")
    if not all(isinstance(one, ResourceRef) for one in params.get("resources", ())):
        raise TypeError(f"{primitive.name} takes resources, got {params['resources']!r:.80}")

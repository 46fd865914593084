"""JAX's primitives by name: those of `jax.extend.core.primitives`, and some that it lacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from jflow.base.values import is_compatible, is_string_tensor, string, unknown_dim, unwrapping
from jflow.compiler.graph import ResourceRef, VariableRef
from jflow.compiler.graph.primitives import (
    ACCESSES,
    HANDLES,
    SOURCES,
    WRITES,
    constant_p,
    ensure_sizes_p,
    group_p,
    host_p,
    update_p,
)


def _named_primitives() -> dict[str, jex.Primitive]:
    all_primitives = (
        value for value in vars(jex.primitives).values() if isinstance(value, jex.Primitive)
    )
    return {primitive.name: primitive for primitive in all_primitives}


def _equations(fun: Callable[..., Any], *args: Any) -> list[jex.JaxprEqn]:
    return list(jax.make_jaxpr(fun)(*args).eqns)


@cache
def primitives() -> dict[str, jex.Primitive]:
    """Returns the primitives that a file may name."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    scalar = jax.ShapeDtypeStruct((2,), jnp.float32)
    eqns = [
        *_equations(lambda x: x.at[0].subtract(1.0), scalar),
        *_equations(lambda x: jax.lax.split(x, (1, 1)), scalar),
        *_equations(
            lambda x: jnp.asarray(x.shape[0]), jax.ShapeDtypeStruct((unknown_dim(),), bool)
        ),
        *_equations(jax.random.clone, key),
        *_equations(jax.random.key_data, key),
    ]
    missing_names = ("dim_as_value", "scatter-sub", "split", "random_clone", "random_unwrap")
    by_name = {
        eqn.primitive.name: eqn.primitive for eqn in eqns if eqn.primitive.name in missing_names
    }
    return by_name | _named_primitives() | {ensure_sizes_p.name: ensure_sizes_p}


OWN: dict[str, jex.Primitive] = {
    primitive.name: primitive for primitive in (*SOURCES, *HANDLES, group_p)
}
"""jflow's own primitives, except for calls of the client's Python functions."""


def check_params(primitive: jex.Primitive, params: dict[str, Any]) -> None:
    """Checks the parameters of a jflow primitive.

    Raises:
      TypeError: if one is missing, unknown or of another type.
    """
    required_params: dict[str, Any] = {}
    optional: dict[str, Any] = {"line": str}
    if primitive in ACCESSES:
        required_params = {"variable": VariableRef}
        if primitive is update_p:
            required_params["body"] = jex.ClosedJaxpr
            optional["is_guarded"] = bool
    elif primitive is constant_p:
        required_params = {"value": np.ndarray, "on_host": bool}
    elif primitive is host_p:
        required_params = {
            "function": str,
            "attributes": bytes,
            "resources": tuple,
            "is_blocking": bool,
        }
        optional["outputs"] = tuple
    for name, value in params.items():
        kind = required_params.get(name, optional.get(name))
        if kind is None or not isinstance(value, kind):
            raise TypeError(f"{primitive.name} does not take {name}={value!r:.80}")
    missing_params = required_params.keys() - params.keys()
    if missing_params:
        raise TypeError(f"{primitive.name} needs {', '.join(sorted(missing_params))}")
    if not all(isinstance(one, ResourceRef) for one in params.get("resources", ())):
        raise TypeError(f"{primitive.name} takes resources, got {params['resources']!r:.80}")


def check_types(
    primitive: jex.Primitive, params: dict[str, Any], inputs: Sequence[Any], outputs: Sequence[Any]
) -> None:
    """Checks the abstract values of a jflow primitive's operands and results.

    Args:
      primitive, params: as `check_params` accepts them.
      inputs, outputs: the abstract values.

    Raises:
      TypeError: if they do not fit the variable or constant.
    """
    if primitive is constant_p:
        _check_constant(params["value"], outputs)
    if primitive in WRITES:
        variable = params["variable"]
        operands = [variable.aval, *inputs] if primitive is update_p else [variable.aval]
        arguments = params["body"].in_avals if primitive is update_p else inputs
        results = params["body"].out_avals if primitive is update_p else [variable.aval]
        for expected, actual in ((operands, arguments), ([variable.aval], results)):
            if len(expected) != len(actual) or not all(map(_fits, expected, actual)):
                raise TypeError(f"{variable} takes {expected}, got {actual}")


def _fits(one: Any, other: Any) -> bool:
    return bool(one.dtype == other.dtype and is_compatible(one.shape, other.shape))


def _check_constant(value: np.ndarray[Any, Any], outputs: Sequence[Any]) -> None:
    if len(outputs) != 1 or outputs[0].shape is None:
        raise TypeError(f"a constant is one value of known shape, got {outputs}")
    (aval,) = outputs
    program = unwrapping(aval)
    physical = aval if program is None else program.out_avals[0]
    dtype = string if is_string_tensor(value) else value.dtype
    if (value.shape, dtype) != (tuple(physical.shape), physical.dtype):
        raise TypeError(f"the constant is {aval}, but its value is {dtype} {value.shape}")

"""Equations whose parameters hold Python functions, so that they need a written form of their own.

Rules of derivatives are Python functions in JAX. They are traced: `jax.custom_jvp` is written as
its body and the program of its derivative, `jax.custom_vjp` as its body and the program from
arguments and cotangents to the gradients, which computes residuals again (XLA merges it with the
forward pass in one program). A rule may use its own function; at the depth `_DEEPEST` such a
function is written without a rule and derived from its body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.export
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from jflow.base.values import is_known, key_implementation
from jflow.client.export.params import UnwritableError
from jflow.client.export.primitives import primitives
from jflow.compiler.graph.request import empty_request_scope
from jflow.plan.xla import internals, jaxprs

EXPORTED = "exported"
"""The name under which an equation serialized by `jax.export` is written."""

_CALL = "jit"
_JVP = "custom_jvp_call"
_VJP = "custom_vjp_call"
_WRAP = "random_wrap"
_SIZE = "dim_as_value"
_SCAN = "scan"
_DEEPEST = 2

Form = tuple[str, dict[str, Any]]


class Depth:
    """The number of derivative rules that enclose what is being written."""

    def __init__(self) -> None:
        self._depth = 0

    @property
    def has_rules(self) -> bool:
        """Whether functions at this depth are written with their derivative rules."""
        return self._depth < _DEEPEST

    @contextmanager
    def inside(self, params: Mapping[str, Any]) -> Iterator[None]:
        """A context manager in which the parameters of an equation are written."""
        n = int("rule" in params)
        self._depth += n
        try:
            yield
        finally:
            self._depth -= n


def _write_call(eqn: jex.JaxprEqn, _: Depth) -> Form:
    params = eqn.params
    placed = (*params["in_shardings"], *params["out_shardings"])
    if any(type(one).__name__ != "UnspecifiedValue" for one in placed):
        raise UnwritableError("a sharding, which names devices")
    if any(one is not None for one in (*params["in_layouts"], *params["out_layouts"])):
        raise UnwritableError("a layout")
    options = dict(params["compiler_options_kvs"])
    return _CALL, {
        "body": params["jaxpr"],
        "name": params["name"],
        "inline": _inline(params["inline"]),
        "options": options,
    }


def _inline(value: Any) -> Any:
    """Returns JAX's `inline` of a call as a boolean, which JAX 0.12 replaced by an enumeration."""
    return {"AUTO": False, "JAX_LATE": True}.get(getattr(value, "name", ""), value)


def _write_closed_call(eqn: jex.JaxprEqn, _: Depth) -> Form:
    body = eqn.params["call_jaxpr"]
    closed = body if isinstance(body, jex.ClosedJaxpr) else jex.ClosedJaxpr(body, ())
    return _CALL, _plain_call(closed, str(eqn.params.get("name", "call")))


def _plain_call(body: jex.ClosedJaxpr, name: str) -> dict[str, Any]:
    return {"body": body, "name": name, "inline": False, "options": {}}


def _write_jvp(eqn: jex.JaxprEqn, depth: Depth) -> Form:
    body = eqn.params["call_jaxpr"]
    if not depth.has_rules:
        return _CALL, _plain_call(body, _JVP)
    fun = _equation_function(eqn)
    varying_positions, derived = _differentiable_positions(body)

    def rule(*args: Any) -> Any:
        primals, tangents = args[: len(body.in_avals)], args[len(body.in_avals) :]
        split = _function_of_varying(fun, primals, varying_positions)
        out, slopes = jax.jvp(split, [primals[i] for i in varying_positions], list(tangents))
        return [*out, *(slopes[i] for i in derived)]

    shapes = [*map(jaxprs.shape_of, body.in_avals)]
    traced = _trace_rule(rule, [*shapes, *(shapes[i] for i in varying_positions)])
    return _JVP, {"body": body, "rule": traced}


def _write_vjp(eqn: jex.JaxprEqn, depth: Depth) -> Form:
    body = eqn.params["call_jaxpr"]
    if not depth.has_rules:
        return _CALL, _plain_call(body, _VJP)
    fun = _equation_function(eqn)
    varying_positions, derived = _differentiable_positions(body)

    def rule(*args: Any) -> Any:
        primals, cotangents = args[: len(body.in_avals)], args[len(body.in_avals) :]
        split = _function_of_varying(fun, primals, varying_positions)
        _, pull_back = jax.vjp(
            lambda *values: [split(*values)[i] for i in derived],
            *(primals[i] for i in varying_positions),
        )
        return list(pull_back(list(cotangents)))

    shapes = [*map(jaxprs.shape_of, body.in_avals)]
    results = [jaxprs.shape_of(body.out_avals[i]) for i in derived]
    return _VJP, {"body": body, "rule": _trace_rule(rule, [*shapes, *results])}


def _write_key(eqn: jex.JaxprEqn, _: Depth) -> Form:
    keys: Any = eqn.outvars[0].aval
    return eqn.primitive.name, {"dtype": keys.dtype}


def _write_scan(eqn: jex.JaxprEqn, _: Depth) -> Form:
    return _SCAN, internals.scan_by_numbers(eqn.params)


WRITERS: dict[str, Callable[[jex.JaxprEqn, Depth], Form]] = {
    "jit": _write_call,
    "closed_call": _write_closed_call,
    "core_call": _write_closed_call,
    "call": _write_closed_call,
    "custom_jvp_call": _write_jvp,
    "custom_vjp_call": _write_vjp,
    "random_wrap": _write_key,
    "random_seed": _write_key,
    "scan": _write_scan,
}
"""Name and parameters of an equation that is written otherwise than by its own, by primitive."""


def _equation_function(eqn: jex.JaxprEqn) -> Callable[..., Any]:
    """Returns an equation as a function of all its operands, which keeps its derivative rule."""
    inputs: list[Any] = [jex.Var(x.aval) for x in eqn.invars]
    program = jaxprs.close(inputs, eqn.outvars, [eqn.replace(invars=inputs)])
    fun: Callable[..., Any] = jex.jaxpr_as_fun(program)
    return fun


def _function_of_varying(
    fun: Callable[..., Any], primals: Sequence[Any], varying: Sequence[int]
) -> Callable[..., Any]:
    """Returns `fun` as a function of the arguments at `varying`, the others fixed."""

    def split(*values: Any) -> Any:
        args = list(primals)
        for i, value in zip(varying, values, strict=True):
            args[i] = value
        return fun(*args)

    return split


def _differentiable_positions(body: jex.ClosedJaxpr) -> tuple[list[int], list[int]]:
    """Returns the positions of the differentiable arguments, and those of such results."""

    def positions(avals: Sequence[Any]) -> list[int]:
        return [i for i, aval in enumerate(avals) if jnp.issubdtype(aval.dtype, jnp.inexact)]

    return positions(body.in_avals), positions(body.out_avals)


def _trace_rule(fun: Callable[..., Any], shapes: Sequence[Any]) -> jex.ClosedJaxpr:
    with empty_request_scope():
        try:
            return jax.make_jaxpr(fun)(*shapes)
        except Exception as error:  # the user's rule may raise anything
            raise UnwritableError(f"a rule that cannot be traced: {error}") from error


# Reading ------------------------------------------------------------------------------------------


def _call(*args: Any, body: jex.ClosedJaxpr, name: str, inline: Any, options: Any) -> Any:
    fun = jex.jaxpr_as_fun(body)

    def called(*values: Any) -> Any:
        return fun(*values)

    called.__name__ = called.__qualname__ = name
    return jax.jit(called, inline=inline, compiler_options=options or None)(*args)


def _call_with_jvp(*args: Any, body: jex.ClosedJaxpr, rule: jex.ClosedJaxpr) -> Any:
    varying_positions, derived = _differentiable_positions(body)

    @jax.custom_jvp
    def called(*values: Any) -> Any:
        return jex.jaxpr_as_fun(body)(*values)

    @called.defjvp
    def derivative(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        results = jex.jaxpr_as_fun(rule)(*primals, *(tangents[i] for i in varying_positions))
        out, derivatives = results[: len(body.out_avals)], iter(results[len(body.out_avals) :])
        slopes = [
            next(derivatives) if i in derived else np.zeros(aval.shape, jax.dtypes.float0)
            for i, aval in enumerate(body.out_avals)
        ]
        return out, slopes

    return called(*args)


def _call_with_vjp(*args: Any, body: jex.ClosedJaxpr, rule: jex.ClosedJaxpr) -> Any:
    varying_positions, derived = _differentiable_positions(body)

    @jax.custom_vjp
    def called(*values: Any) -> Any:
        return jex.jaxpr_as_fun(body)(*values)

    def forward(*values: Any) -> Any:
        return called(*values), values

    def backward(values: Any, cotangents: Any) -> Any:
        gradients = jex.jaxpr_as_fun(rule)(*values, *(cotangents[i] for i in derived))
        slopes: list[Any] = [None] * len(values)
        for i, slope in zip(varying_positions, gradients, strict=True):
            slopes[i] = slope
        return tuple(slopes)

    called.defvjp(forward, backward)
    return called(*args)


def _call_exported(*args: Any, program: jax.export.Exported) -> Any:
    return program.call(*args)


def _wrap_key(data: Any, *, dtype: Any) -> Any:
    return jax.random.wrap_key_data(data, impl=_name_of(dtype))


def _seed_key(seed: Any, *, dtype: Any) -> Any:
    return jax.random.key(seed, impl=_name_of(dtype))


def _size(*, dim: Any) -> Any:
    """Returns a size as a value; as a number if the program is traced for known sizes."""
    return jnp.asarray(dim) if is_known(dim) else primitives()[_SIZE].bind(dim=dim)


def _scan(*args: Any, **params: Any) -> Any:
    return primitives()[_SCAN].bind(*args, **internals.scan_of_numbers(params))


def _name_of(dtype: Any) -> str:
    return str(key_implementation(dtype))


READERS: dict[str, Callable[..., Any]] = {
    _CALL: _call,
    _JVP: _call_with_jvp,
    _VJP: _call_with_vjp,
    EXPORTED: _call_exported,
    _WRAP: _wrap_key,
    "random_seed": _seed_key,
    _SIZE: _size,
    _SCAN: _scan,
}
"""The functions that compute what `WRITERS` wrote, by name."""

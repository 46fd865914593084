"""Checks what functions take, return and capture; the errors say how to mend it."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np
from jax.api_util import shaped_abstractify
from jax.tree_util import keystr

from jflow.compiler.graph import tracing

PLAIN = (jax.Array, np.ndarray, np.generic, bool, int, float, complex)

_OF_SETTINGS = (
    "declare settings in static_argnums or static_argnames, or bind them with functools.partial"
)
_OF_REFS = (
    "pass the value of a jax.Ref, ref[...], and return the new one, or use a jflow.Variable, which "
    "functions read and write"
)


def argument_error(leaf: Any, fun: Any, name: str) -> TypeError:
    """Returns the error for an argument that is not an array.

    Args:
      leaf: the argument, or a part of it.
      fun: the function.
      name: the name of the argument, with the path of the part.
    """
    advice = _OF_REFS if isinstance(leaf, jax.Ref) else _OF_SETTINGS
    return TypeError(
        f"{fun!r} requires an array or number as {name}, got {leaf!r:.80} of type "
        f"{type(leaf).__name__}; {advice}"
    )


def check_outputs(outputs: Sequence[Any], tree: Any, fun: Any) -> None:
    """Checks that a traced function returned only arrays and numbers.

    Raises:
      TypeError: if one of the results is no array.
      OverflowError: if one is an integer that does not fit into JAX's type.
    """
    for number, output in enumerate(outputs):
        if not isinstance(output, PLAIN):
            raise TypeError(
                f"{fun!r} must return arrays or numbers, got {output!r:.80} of type "
                f"{type(output).__name__} as result{keystr(paths(tree, outputs)[number])}"
                + ("; return its value, ref[...]" if isinstance(output, jax.Ref) else "")
            )
        if isinstance(output, int):
            try:
                shaped_abstractify(output)
            except OverflowError as error:
                raise OverflowError(f"{fun!r} returned an integer out of range: {error}") from None


def paths(tree: Any, leaves: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Returns the path of each leaf in a structure."""
    return [path for path, _ in jax.tree.leaves_with_path(tree.unflatten(leaves))]


def trace_with_captures(
    fun: Callable[..., Any], settings: Iterable[Any], trace: Callable[[], Any]
) -> Any:
    """Traces a function, unless it uses the state of a Flax or Keras object that it captures.

    The arrays of a model would become constants of the compiled function, which would not see later
    updates of the model, and what the function assigns to the model would be lost.

    Args:
      fun: the function.
      settings: its static arguments, with the object of a method.
      trace: traces it and returns its jaxpr.

    Raises:
      TypeError: if it captures a module of Flax NNX, or uses the state of an object of Keras.
    """
    nnx, keras = sys.modules.get("flax.nnx"), sys.modules.get("keras")
    if nnx is None and keras is None:
        return trace()
    captured = [*captured_values(fun), *((type(s).__name__, s) for s in settings)]
    if nnx is not None:
        _check_nnx_modules(nnx, fun, captured)
    stateful = [] if keras is None else [*_keras_variables(keras, captured)]
    if not stateful:
        return trace()
    # What is assigned in this scope stays in it, so a refused function has changed no variable.
    with keras.StatelessScope() as scope:  # type: ignore[union-attr]
        jaxpr = trace()
    constants = {id(one) for one in _constants(jaxpr)}
    for name, owner, variable in stateful:
        is_used = id(_value_of(variable)) in constants
        if is_used or scope.get_current_value(variable) is not None:
            raise TypeError(
                f"{tracing.name_of(fun)!r} {'reads' if is_used else 'assigns to'} the variable "
                f"{variable.path!r} of {name!r} ({type(owner).__name__}), which it captures; the "
                "values of Keras variables would become constants, and what is assigned to them "
                "would be lost: pass them as arguments, and call `stateless_call` of a model or "
                "metric, or `stateless_apply` of an optimizer, inside"
            )
    return jaxpr


def _check_nnx_modules(nnx: Any, fun: Callable[..., Any], captured: Iterable[Any]) -> None:
    for name, value in captured:
        if isinstance(value, nnx.Module):
            raise TypeError(
                f"{tracing.name_of(fun)!r} captures the NNX module {name!r} "
                f"({type(value).__name__}), whose parameters would become constants; pass them as "
                f"an argument: `graphdef, params = nnx.split({name})` outside the function, "
                "`nnx.merge(graphdef, params)` inside"
            )


def _keras_variables(keras: Any, captured: Iterable[Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yields each Keras variable with the name and the captured object that it was found under."""
    owners = (keras.Layer, keras.Metric, keras.Optimizer)
    for name, value in captured:
        if isinstance(value, keras.Variable):
            yield name, value, value
        elif isinstance(value, owners):
            yield from ((name, value, variable) for variable in value.variables)


def _value_of(variable: Any) -> Any:
    """Returns the value of a variable of Keras; None while `fit` keeps it elsewhere."""
    try:
        return variable.value
    except TypeError:
        return None


def _constants(jaxpr: Any) -> Iterator[Any]:
    """Yields the constants of a jaxpr, including scalars that are literals of its equations."""
    yield from jaxpr.consts
    for equation in jaxpr.eqns:
        yield from (one.val for one in equation.invars if isinstance(one, jex.Literal))


def captured_values(fun: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    inner = inspect.unwrap(fun)
    while isinstance(inner, functools.partial):
        yield from ((type(value).__name__, value) for value in inner.args)
        yield from inner.keywords.items()
        inner = inspect.unwrap(inner.func)
    owner = getattr(inner, "__self__", inner)
    yield type(owner).__name__, owner
    if not inspect.isfunction(inner):
        return
    variables = inspect.getclosurevars(inner)
    yield from variables.nonlocals.items()
    yield from variables.globals.items()

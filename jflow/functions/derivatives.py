"""`grad` and `value_and_grad` of functions of arrays, with variables among the arguments."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import jax

from jflow.functions.function import Function
from jflow.ops import Variable

P = ParamSpec("P")
R = TypeVar("R")


def value_and_grad(
    fun: Callable[P, R], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Function[P, tuple[R, Any]]:
    """As `jax.value_and_grad`, run where `jflow.connect` says.

    The arguments that are differentiated by may hold variables: `fun` gets their values, and the
    derivatives have the same structure. Variables that `fun` uses otherwise count as constants.

    Args:
      fun: gives a scalar, or with `has_aux` a scalar and something else.
      argnums: which arguments to differentiate by.
      has_aux: whether `fun` also gives something else.

    Returns:
      A `jflow.function` of the same arguments that gives (value, derivatives). In graph code it
      takes tensors and graph variables and gives tensors.
    """
    made: Function[P, tuple[R, Any]] = _differentiated(jax.value_and_grad, fun, argnums, has_aux)
    return made


def grad(
    fun: Callable[P, Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Function[P, Any]:
    """As `value_and_grad`, without the value; see there."""
    made: Function[P, Any] = _differentiated(jax.grad, fun, argnums, has_aux)
    return made


def _differentiated(
    transform: Callable[..., Any],
    fun: Callable[..., Any],
    argnums: int | Sequence[int],
    has_aux: bool,
) -> Any:
    chosen_ones = argnums if isinstance(argnums, Sequence) else (argnums,)
    numbers = {operator.index(number) for number in chosen_ones}

    @functools.wraps(fun)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        chosen = {number % len(args) for number in numbers if -len(args) <= number < len(args)}
        values = [_values(arg) if i in chosen else arg for i, arg in enumerate(args)]
        return transform(fun, argnums=argnums, has_aux=has_aux)(*values, **kwargs)

    return Function(differentiated)


def _values(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.value() if isinstance(leaf, Variable) else leaf, tree)

"""`grad` and `value_and_grad` of functions whose arguments can hold variables."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

import jax

from jflow.client.functions.differentiable import Differentiable
from jflow.client.functions.function import Function
from jflow.client.ops.variable import read

P = ParamSpec("P")
R = TypeVar("R")


def value_and_grad(
    fun: Callable[P, R], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Function[P, tuple[R, Any]]:
    """Creates a function that evaluates both `fun` and its gradient on the current connection.

    Like `jax.value_and_grad`, but the arguments to differentiate can hold variables: `fun` gets
    their values, and the gradient has the structure of the arguments. Variables that `fun` uses in
    any other way are constants.

    Args:
      fun: the function to differentiate. It returns a scalar; with `has_aux`, a pair of a scalar
        and auxiliary data.
      argnums: the positional arguments to differentiate with respect to.
      has_aux: whether `fun` returns a pair.

    Returns:
      A `jflow.function` with the arguments of `fun` that returns the pair of its value and its
      gradient; a tuple of gradients if `argnums` is a sequence. In graph code it takes tensors and
      variables of the graph and returns tensors.

    Raises:
      TypeError: if an index in `argnums` is not an integer.
    """
    function: Function[P, tuple[R, Any]] = _differentiated(
        jax.value_and_grad, fun, argnums, has_aux
    )
    return function


def grad(
    fun: Callable[P, Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Function[P, Any]:
    """Creates a function that evaluates the gradient of `fun` on the current connection.

    Args:
      fun, argnums, has_aux: as for `value_and_grad`.

    Returns:
      A `jflow.function` with the arguments of `fun` that returns its gradient; with `has_aux`, a
      pair of the gradient and the auxiliary data.

    Raises:
      TypeError: if an index in `argnums` is not an integer.
    """
    function: Function[P, Any] = _differentiated(jax.grad, fun, argnums, has_aux)
    return function


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
        positions = {number % len(args) for number in numbers if -len(args) <= number < len(args)}
        values = [_values(arg) if i in positions else arg for i, arg in enumerate(args)]
        called = _of_wholes(fun, {i: args[i] for i in positions})
        return transform(called, argnums=argnums, has_aux=has_aux)(*values, **kwargs)

    return Function(differentiated)


def _of_wholes(fun: Callable[..., Any], given: Mapping[int, Any]) -> Callable[..., Any]:
    """Returns a function of values that calls one of wholes.

    Args:
      fun: the function.
      given: arguments by position, in which there may be state with a trainable part.
    """
    flat: dict[int, tuple[list[Any], Any]] = {i: jax.tree.flatten(arg) for i, arg in given.items()}
    divided = {i: (leaves, tree) for i, (leaves, tree) in flat.items() if _has_parts(leaves)}
    if not divided:
        return fun

    def whole(leaf: Any, value: Any) -> Any:
        return leaf.with_part(value) if isinstance(leaf, Differentiable) else value

    def called(*args: Any, **kwargs: Any) -> Any:
        wholes = list(args)
        for i, (leaves, tree) in divided.items():
            values = tree.flatten_up_to(args[i])
            wholes[i] = tree.unflatten(map(whole, leaves, values))
        return fun(*wholes, **kwargs)

    return called


def _has_parts(leaves: Sequence[Any]) -> bool:
    return any(isinstance(leaf, Differentiable) for leaf in leaves)


def _values(tree: Any) -> Any:
    return jax.tree.map(
        lambda leaf: leaf.trainable() if isinstance(leaf, Differentiable) else read(leaf), tree
    )

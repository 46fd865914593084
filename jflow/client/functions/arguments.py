"""The arguments of a function: static and dynamic ones, their names and abstract values."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import jax
from jax.api_util import shaped_abstractify
from jax.tree_util import SequenceKey, keystr

from jflow.base.values import is_key, refuse_host
from jflow.client.functions.captures import PLAIN, argument_error, paths
from jflow.client.functions.differentiable import Differentiable
from jflow.client.ops.variable import VariableLike
from jflow.compiler.graph import Tensor, tracing
from jflow.compiler.graph.tracing import Static

_STATIC = (Static, VariableLike, Differentiable)
"""Leaves that are passed to the function as they are; everything else is traced."""


class FunctionArguments:
    """The parameters of a function: their names, and which of them are static.

    A leaf is a part of an argument that is not a container. It is *static* if it belongs to the
    trace: a declared setting or a variable. All others are *dynamic*: passed with each call.

    Args:
      fun: the Python function.
      static_argnums, static_argnames: as for `jflow.function`.

    Attributes:
      static_nums, static_names: the positions and names that are declared static.
      has_static: whether there are any.
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        static_argnums: int | Iterable[int],
        static_argnames: str | Iterable[str],
    ) -> None:
        self._fun = fun
        self.static_nums = _tuple(static_argnums, int)
        self.static_names = frozenset(_tuple(static_argnames, str))
        self.has_static = bool(self.static_nums or self.static_names)

    def mark_static(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the arguments with each one declared static wrapped in `Static`."""
        nums = {n % len(args) if n < 0 and args else n for n in self.static_nums}
        marked_args = tuple(Static.of(a) if i in nums else a for i, a in enumerate(args))
        marked_kwargs = {
            k: Static.of(v) if k in self.static_names else v for k, v in kwargs.items()
        }
        return marked_args, marked_kwargs

    def check(self, tree: Any, leaves: list[Any], user: object) -> None:
        """Checks that each leaf is an array, a number, a tensor or static.

        Args:
          tree, leaves: the arguments as JAX flattens them.
          user: the function that takes the arguments, for the message.

        Raises:
          TypeError: if one is something else, such as a string.
        """
        for number, leaf in enumerate(leaves):
            if not isinstance(leaf, (*PLAIN, Tensor, *_STATIC)):
                name, inside = self._split(paths(tree, leaves)[number])
                raise argument_error(leaf, user, name + keystr(inside))
            if isinstance(leaf, Tensor):
                refuse_host(leaf, user)

    def names(self, tree: Any, leaves: list[Any]) -> list[str]:
        """Returns the name of each dynamic leaf: its parameter and the path in it, by "/"."""
        split = [
            self._split(path)
            for path, leaf in zip(paths(tree, leaves), leaves, strict=True)
            if not isinstance(leaf, _STATIC)
        ]
        return [
            f"{name}/{keystr(inside, simple=True, separator='/')}" if inside else name
            for name, inside in split
        ]

    def _split(self, path: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
        """Splits a leaf's path into the parameter's name and the path inside the argument."""
        _, first, *inside = path
        if not isinstance(first, SequenceKey):
            return first.key, tuple(inside)
        names = _parameters(self._fun)
        name = names[first.idx] if first.idx < len(names) else f"argument {first.idx}"
        return name, tuple(inside)


def kind(leaf: Any) -> Any:
    """Returns a leaf's part of the trace key: shape and dtype of an array, else the leaf itself."""
    if isinstance(leaf, jax.Array) and is_key(leaf.dtype):
        return leaf.shape, leaf.dtype  # much faster than the abstract value
    if isinstance(leaf, PLAIN):
        return shaped_abstractify(leaf)
    return leaf  # static, or refused later


def aval_of(leaf: Any) -> Any:
    """Returns the abstract value of a dynamic leaf."""
    return leaf.aval if isinstance(leaf, Tensor) else shaped_abstractify(leaf)


def dynamic(leaves: list[Any]) -> list[Any]:
    """Returns the dynamic leaves, whose values are passed with each call."""
    return [leaf for leaf in leaves if not isinstance(leaf, _STATIC)]


def with_dynamic(leaves: list[Any], values: Iterable[Any]) -> list[Any]:
    """Replaces the values of the dynamic leaves and unwraps the static ones."""
    rest = iter(values)
    return [unmarked(leaf) if isinstance(leaf, _STATIC) else next(rest) for leaf in leaves]


def unmarked(leaf: Any) -> Any:
    """Returns a leaf unwrapped from its `Static`, if it has one."""
    return leaf.value if isinstance(leaf, Static) else leaf


def _tuple(values: Any, single: type) -> tuple[Any, ...]:
    return (values,) if isinstance(values, single) else tuple(values)


def _parameters(fun: Callable[..., Any]) -> list[str]:
    """Returns the names of a function's positional parameters; [] if it has no signature."""
    try:
        parameters = inspect.signature(fun).parameters.values()
    except (TypeError, ValueError):
        return []  # some built-in functions have no signature
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind in positional]


def signature_text(fun: Callable[..., Any]) -> str:
    """Returns the name and parameters of a function, for people."""
    try:
        return f"{tracing.name_of(fun)}{inspect.signature(fun)}"
    except (TypeError, ValueError):
        return tracing.name_of(fun)


def location_of(fun: Callable[..., Any]) -> str:
    """Returns "file:line" of a function; "" where that is not known."""
    code = getattr(inspect.unwrap(fun), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""

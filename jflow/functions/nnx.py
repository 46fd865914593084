"""The refusal of Flax NNX modules that a function uses from outside of itself."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from jflow.graph import tracing


def check_nnx_modules(fun: Callable[..., Any], settings: Iterable[Any] = ()) -> None:
    """Refuses a function that uses a Flax NNX module from outside.

    The arrays of the module would become constants of the function, which would not see later
    updates of the module.

    Args:
      fun: the function.
      settings: its static arguments; the object, if it is a method.

    Raises:
      TypeError: if there is one.
    """
    nnx = sys.modules.get("flax.nnx")
    if nnx is None:
        return
    for name, value in (*_outer_values(fun), *((type(s).__name__, s) for s in settings)):
        if isinstance(value, nnx.Module):
            raise TypeError(
                f"{tracing.name_of(fun)!r} uses the NNX module {name!r} ({type(value).__name__}) "
                "from outside, so its parameters would be constants; pass them: `graphdef, params "
                f"= nnx.split({name})` outside, `params` as an argument, and `nnx.merge(graphdef, "
                "params)` inside"
            )


def _outer_values(fun: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
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

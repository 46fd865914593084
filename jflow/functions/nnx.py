"""The NNX check: refuses functions that capture a Flax NNX module."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from jflow.graph import tracing


def check_nnx_modules(fun: Callable[..., Any], settings: Iterable[Any] = ()) -> None:
    """Refuses a function that captures a Flax NNX module.

    The arrays of the module would become constants of the compiled function, which would not see
    later updates of the module.

    Args:
      fun: the function.
      settings: its static arguments, with the object of a method.

    Raises:
      TypeError: if it captures one.
    """
    nnx = sys.modules.get("flax.nnx")
    if nnx is None:
        return
    for name, value in (*captured_values(fun), *((type(s).__name__, s) for s in settings)):
        if isinstance(value, nnx.Module):
            raise TypeError(
                f"{tracing.name_of(fun)!r} captures the NNX module {name!r} "
                f"({type(value).__name__}), whose parameters would become constants; pass them as "
                f"an argument: `graphdef, params = nnx.split({name})` outside the function, "
                "`nnx.merge(graphdef, params)` inside"
            )


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

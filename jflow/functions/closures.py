"""What a function must not close over: objects whose arrays would be frozen into its code."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any


def check_closure(fun: Callable[..., Any]) -> None:
    """Refuses a function that uses a Flax NNX module from outside.

    Its arrays would become constants, and the function would go on with them when the module has
    long been trained further.

    Raises:
      TypeError: if there is one.
    """
    nnx = sys.modules.get("flax.nnx")
    if nnx is None:
        return
    for name, value in _outer_values(fun):
        if isinstance(value, nnx.Module):
            raise TypeError(
                f"{fun.__qualname__!r} uses the NNX module {name!r} ({type(value).__name__}) from "
                "outside, so its parameters would be constants; pass them: `graphdef, params = "
                f"nnx.split({name})` outside, `params` as an argument, and `nnx.merge(graphdef, "
                "params)` inside"
            )


def _outer_values(fun: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    inner = inspect.unwrap(fun)
    if not inspect.isfunction(inner):
        return
    variables = inspect.getclosurevars(inner)
    yield from variables.nonlocals.items()
    yield from variables.globals.items()

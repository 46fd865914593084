"""Unknown sizes as arguments: `zeros((x.shape[0], 3))` depends on `x`.

A program reads an unknown size from the shape of one of its arguments. A call that only names a
size, and takes no tensor that has it, therefore gets such a tensor as one more argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, wraps
from typing import Any

import jax
import jax.export
import jax.numpy as jnp

from jflow.base.values import HostArray, plain_size, symbols_in


def unbound_sizes(leaves: Iterable[Any], shapes: Iterable[Sequence[Any] | None]) -> list[str]:
    """Returns the symbols in static arguments that are no size of an argument.

    Args:
      leaves: the static arguments.
      shapes: the shapes of the other arguments; None for an unknown rank.
    """
    named = [size for size in map(plain_size, leaves) if jax.export.is_symbolic_dim(size)]
    if not named:
        return []
    bound = {str(dim) for shape in shapes for dim in shape or ()}
    needed = (one for size in named if str(size) not in bound for one in symbols_in(size))
    return [name for name in dict.fromkeys(map(str, needed)) if name not in bound]


def sources_of(symbols: Sequence[str], tensors: Iterable[Any]) -> list[Any]:
    """Returns the first tensor that has each of these sizes; none for a size that no tensor has.

    Args:
      symbols: names of sizes.
      tensors: the tensors of a graph, in the order of their creation.
    """
    found: dict[str, Any] = {}
    for tensor in tensors:
        if not isinstance(tensor.aval, HostArray):
            for dim in tensor.aval.shape:
                if (name := str(dim)) in symbols:
                    found.setdefault(name, tensor)
            if len(found) == len(symbols):
                break
    return list(dict.fromkeys(found.values()))


@lru_cache(maxsize=1024)
def with_sources(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of (sources, args, kwargs), whose results depend on the sources."""

    @wraps(fun)
    def call(sources: Any, args: Any, kwargs: Any) -> Any:
        results = jax.tree.map(jnp.asarray, fun(*args, **kwargs))
        # XLA computes nothing for it, and JAX keeps arguments that a barrier takes.
        return jax.lax.optimization_barrier((results, sources))[0]

    return call

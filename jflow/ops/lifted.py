"""JAX's namespaces for graph tensors: `jflow.numpy.dot(x, w)` adds `jax.numpy.dot` to a graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

import jax

from jflow.graph import Graph, Symbolic
from jflow.graph import get_default_graph as _default_graph


class Lifted:
    """A namespace of JAX whose functions take tensors and add themselves to the graph.

    Namespaces inside it are lifted too. Everything else in it (dtypes, constants, classes) is
    JAX's own.
    """

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            # With JAX's __path__, Python would find JAX's own modules below this namespace.
            raise AttributeError(f"{self._module.__name__} on graph tensors has no {name!r}")
        value = getattr(self._module, name)
        if isinstance(value, ModuleType):
            value = Lifted(value)
        elif _is_function(value):
            value = lift(value)
        # Found here from now on, without another call of __getattr__.
        self.__dict__[name] = value
        return value

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._module) if not name.startswith("_")]


def lift(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The function that adds `fun` to the graph of its arguments instead of computing it.

    The result takes tensors, variables and arrays where `fun` takes arrays, and `name=` for the
    operation unless `fun` itself has such an argument.
    """

    @wraps(fun)
    def lifted(*args: Any, **kwargs: Any) -> Any:
        name = kwargs.pop("name", None)
        return _graph_of((args, kwargs)).apply(fun, args, kwargs, name=name)

    return lifted


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, type)


def _graph_of(arguments: Any) -> Graph:
    for leaf in jax.tree.leaves(arguments):
        if isinstance(leaf, Symbolic):
            graph: Graph = leaf.to_tensor().graph
            return graph
    return _default_graph()

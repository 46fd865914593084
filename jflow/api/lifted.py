"""JAX's namespaces for graph tensors: `jflow.numpy.dot(x, w)` adds an operation to their graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

import jax

import jflow.api.root  # noqa: F401 - makes tracebacks end at methods of the returned tensors
from jflow.api.missing import missing
from jflow.base.suggestions import explain_arguments
from jflow.base.tracebacks import hide_frames
from jflow.client.ops.variable import Variable, VariableLike, read
from jflow.compiler.graph import Graph, Tensor
from jflow.compiler.graph import get_default_graph as _default_graph
from jflow.plan.xla.internals import is_tracing


def lift_namespace(
    namespace: dict[str, Any], module: ModuleType
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__` of a module that lifts a namespace of JAX.

    Args:
      namespace: globals of the module, where names are kept once they are used.
      module: the namespace of JAX.
    """
    names = LiftedNamespace(module)

    def get(name: str) -> Any:
        try:
            value = getattr(names, name)
        except AttributeError as error:
            hide_frames(error)
            raise
        namespace[name] = value
        return value

    return get, names.__dir__


class LiftedNamespace:
    """A namespace of JAX whose functions also take graph tensors; see `lift`.

    Namespaces inside it are lifted too. Everything else (dtypes, constants, classes) is JAX's own.
    """

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            # Given JAX's __path__, Python would import JAX's own modules as submodules of this one.
            raise AttributeError(f"{self!r} has no attribute {name!r}")
        try:
            value = getattr(self._module, name)
        except AttributeError:
            public = self._module.__name__.replace("jax", "jflow", 1)
            raise missing(public, name, dir(self)) from None
        if isinstance(value, ModuleType):
            value = LiftedNamespace(value)
        elif _is_function(value):
            value = lift(value)
        # Later lookups find it here, without another call of __getattr__.
        self.__dict__[name] = value
        return value

    def __repr__(self) -> str:
        return f"<{self._module.__name__} for jflow tensors and variables>"

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._module) if not name.startswith("_")]


def lift(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that adds `fun` to the graph of its arguments instead of computing it.

    It takes tensors, variables and arrays where `fun` takes arrays, and the name of the operation
    as `name`, unless `fun` has an argument of that name. Inside a function that JAX traces, and
    with eager variables as arguments, it calls `fun`.
    """

    @wraps(fun)
    def lifted(*args: Any, **kwargs: Any) -> Any:
        try:
            leaves = jax.tree.leaves((args, kwargs))
            graph = _graph_of(leaves)
            if graph is None:
                args, kwargs = jax.tree.map(read, (args, kwargs))
                return fun(*args, **kwargs)
            name = kwargs.pop("name", None)
            return graph.apply(fun, args, kwargs, name=name)
        except Exception as error:
            explain_arguments(error, fun)
            hide_frames(error)
            raise

    return lifted


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, type)


def _graph_of(leaves: list[Any]) -> Graph | None:
    """Returns the graph to add a call to; None to call the function of JAX itself."""
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            return leaf.graph
    variables = [leaf for leaf in leaves if isinstance(leaf, VariableLike)]
    if is_tracing() or any(variable.is_eager for variable in variables):
        return None
    graphs = (leaf.graph for leaf in variables if isinstance(leaf, Variable))
    return next(graphs, None) or _default_graph()

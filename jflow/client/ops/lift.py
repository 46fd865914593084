"""JAX's functions on graph tensors: a call adds an operation to the graph of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import jax

from jflow.base.suggestions import explain_arguments
from jflow.base.tracebacks import hide_frames
from jflow.base.values import as_array
from jflow.client.ops.variable import Variable, VariableLike, read
from jflow.compiler.graph import Graph, Tensor
from jflow.compiler.graph import get_default_graph as _default_graph
from jflow.compiler.graph.packing import has_tensors, stacked
from jflow.plan.xla.internals import is_tracing


def lift(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that adds `fun` to the graph of its arguments instead of computing it.

    It takes tensors, variables and arrays where `fun` takes arrays, and the name of the operation
    as `name`. Inside a function that JAX traces, and with eager variables as arguments, it calls
    `fun`.
    """

    @wraps(fun)
    def lifted(*args: Any, **kwargs: Any) -> Any:
        try:
            graph = target_graph(args, kwargs)
            name = kwargs.pop("name", None)
            if graph is None:
                args, kwargs = jax.tree.map(read, (args, kwargs))
                return fun(*args, **kwargs)
            return graph.apply(fun, args, kwargs, name=name)
        except Exception as error:
            explain_arguments(error, fun)
            hide_frames(error)
            raise

    return lifted


def operation(fun: Callable[..., Any], op_name: str) -> Callable[..., Any]:
    """Lifts a function as `lift`; its operations have this name, that of TensorFlow, by default.

    Lists and tuples of numbers and tensors count as arrays, as TensorFlow packs them. The name is
    an argument `name` behind those of `fun`, and may be None.
    """

    @wraps(fun)
    def on_arrays(*args: Any, **kwargs: Any) -> Any:
        return fun(*map(_packed, args), **kwargs)

    lifted = lift(on_arrays)

    def call(*args: Any, name: str | None = None, **kwargs: Any) -> Any:
        return lifted(*map(_array, args), name=name or op_name, **kwargs)

    call.__name__ = call.__qualname__ = op_name
    return call


def _array(value: Any) -> Any:
    """Returns lists and tuples of numbers as arrays; what has tensors, and all else, as it is."""
    if not isinstance(value, list | tuple):
        return value
    return value if has_tensors(value) else as_array(value)


def _packed(value: Any) -> Any:
    return stacked(value) if isinstance(value, list | tuple) else value


def target_graph(*arguments: Any) -> Graph | None:
    """Returns the graph to add a call to; None if JAX's own function is to be called."""
    leaves: Sequence[Any] = jax.tree.leaves(arguments)
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            return leaf.graph
    variables = [leaf for leaf in leaves if isinstance(leaf, VariableLike)]
    if is_tracing() or any(variable.is_eager for variable in variables):
        return None
    graphs = (leaf.graph for leaf in variables if isinstance(leaf, Variable))
    return next(graphs, None) or _default_graph()

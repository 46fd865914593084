"""Calls of functions of the host: operations in a graph, or plain calls in functions of datasets.

Inside a function of a `jflow.data.Dataset` they are plain functions: they take arrays, text or
bytes and return NumPy arrays; a scalar result is a NumPy scalar or `bytes`. They keep 64-bit
dtypes there, because no value goes to a device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jflow.base.values import (
    AbstractValue,
    Array,
    Dtype,
    HostArray,
    as_array,
    as_strings,
    host_abstract,
    host_dtype,
    is_unranked,
    string,
    unknown_dim,
)
from jflow.compiler.graph import Graph, Symbolic, Tensor
from jflow.compiler.graph import get_default_graph as _default_graph
from jflow.compiler.graph.calls import call
from jflow.compiler.graph.packing import leaves_of
from jflow.compiler.graph.stack import decodes_eagerly
from jflow.state.records import DECODERS

_INT64 = np.dtype(np.int64)


def graph_for(*values: Any) -> Graph | None:
    """Returns the graph to add a call to; None for arrays inside a dataset's function."""
    if decodes_eagerly() and not any(map(is_symbolic, values)):
        return None
    return _default_graph()


def is_symbolic(value: Any) -> bool:
    """Whether a value is a tensor or variable of a graph, or a list that contains one."""
    return any(isinstance(leaf, Symbolic) for leaf in leaves_of(value))


def invoke(
    function: str,
    inputs: Sequence[Any],
    avals: Callable[[], Sequence[AbstractValue]],
    name: str,
    **attributes: Any,
) -> tuple[Tensor, ...]:
    """Adds a call and returns its tensors; with arrays as inputs, runs the decoder immediately."""
    if isinstance(inputs[0], Tensor):
        graph = inputs[0].graph
        return call(graph, function, inputs, avals(), name=name, attributes=attributes).outputs
    arrays: tuple[Any, ...] = tuple(
        array[()] for array in DECODERS[function](*inputs, **attributes)
    )
    return arrays


def stays_on_host(*values: Any) -> bool:
    """Whether one of the values is text or a host tensor, or a list that contains one."""
    return any(_is_on_host(leaf) for value in values for leaf in leaves_of(value))


def _is_on_host(leaf: Any) -> bool:
    if isinstance(leaf, Tensor):
        return isinstance(leaf.aval, HostArray) and not is_unranked(leaf.aval)
    is_array = isinstance(leaf, np.ndarray | np.generic)
    return isinstance(leaf, str | bytes) or (is_array and leaf.dtype.kind in "OSU")


def on_host(graph: Graph | None, value: Any) -> Any:
    """Returns a value as a tensor on the host; as an array if there is no graph."""
    if graph is None:
        return host_array(value)
    if not is_symbolic(value):
        return graph.constant(value, on_host=True)
    return graph.as_tensor(value)


def host_array(value: Any) -> Array:
    """Returns a value as an array that keeps its 64-bit dtype, unlike a constant of a graph."""
    dtype = getattr(value, "dtype", None)
    if dtype is None or dtype.kind in "OSU":
        return np.asarray(as_array(value))
    return np.asarray(value)


def strings_of(graph: Graph | None, value: Any) -> Any:
    """Like `on_host`, for strings. Raises TypeError for other values."""
    if graph is None:
        return as_strings(value)
    tensor = on_host(graph, value)
    if tensor.dtype != string:
        raise TypeError(f"expected strings, got {tensor!r}")
    return tensor


def shape_of(value: Any) -> Any:
    """Returns the shape of a tensor or array; None if it is unknown."""
    return value.aval.shape if isinstance(value, Tensor) else value.shape


def text_of(value: Any, what: str) -> str:
    """Returns an argument that must be text at build time. Raises TypeError if it is not."""
    if isinstance(value, str | bytes):
        return value if isinstance(value, str) else value.decode()
    raise TypeError(f"{what} is text that is known when the graph is built, got {value!r:.80}")


def dtype_of_numbers(dtype: Any) -> np.dtype[Any]:
    """Returns a numeric dtype, which may have 64 bits since the values stay on the host."""
    number_dtype = host_dtype(dtype)
    if not isinstance(number_dtype, np.dtype):
        raise TypeError(f"expected a dtype of numbers, got {dtype!r}")
    return number_dtype


def sparse_avals(dtype: Dtype, rank: int = 2) -> list[AbstractValue]:
    """Returns the abstract values of the three components of a sparse tensor."""
    n_values = unknown_dim()
    return [
        host_abstract((n_values, rank), _INT64),
        host_abstract((n_values,), dtype),
        host_abstract((rank,), _INT64),
    ]

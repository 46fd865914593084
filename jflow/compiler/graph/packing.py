"""Packing of lists and tuples that contain tensors into one tensor, as TensorFlow converts them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jflow.base.values import (
    HostArray,
    as_array,
    host_abstract,
    host_dtype,
    is_compatible,
    is_known,
    is_switched_off,
    is_unranked,
    string,
)
from jflow.compiler.graph.calls import call
from jflow.compiler.graph.symbolic import Symbolic

_NAME = "packed"
"""TensorFlow's name for such an operation."""


def has_tensors(value: Any) -> bool:
    """Whether a value is a list or tuple in which there are tensors, variables or JAX arrays."""
    if not isinstance(value, list | tuple):
        return False
    return any(isinstance(leaf, Symbolic | jax.Array) for leaf in leaves_of(value))


def leaves_of(value: Any) -> Iterator[Any]:
    """Yields what nested lists and tuples contain; a value that is none of them by itself."""
    if not isinstance(value, list | tuple):
        yield value
        return
    for one in value:
        yield from leaves_of(one)


def packed(graph: Any, values: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Returns nested lists and tuples that contain tensors as one tensor.

    Args:
      graph: the graph of the tensors; None for JAX arrays and eager variables.
      values: lists or tuples, for which `has_tensors` holds; all of one length at each depth.
      dtype: the dtype of the result, to which the tensors in it are cast; None for theirs.
      name: name of the operation.

    Returns:
      dtype[n, *shape], where *shape is that of each of the n values.

    Raises:
      TypeError: if there are tensors of several dtypes, or a value cannot have the dtype.
      ValueError: if the shapes differ.
    """
    if graph is None:
        return stacked(values, dtype)
    wanted = _dtype_of(values, dtype)
    leaves = leaves_of(values)
    tensors = [graph.as_tensor(leaf) for leaf in leaves if isinstance(leaf, Symbolic)]
    is_wide = wanted == string or is_switched_off(wanted)
    if is_wide or any(map(_is_on_host, tensors)):
        return _stack_on_host(graph, values, wanted, name or _NAME)
    return graph.apply(stacked, (values, wanted), name=name or _NAME)


def stacked(values: Any, dtype: Any = None) -> Any:
    """Returns nested lists and tuples of JAX arrays and numbers as one array; see `packed`."""
    return _stack(values, _dtype_of(values, dtype))


def _stack(value: Any, dtype: Any) -> Any:
    if has_tensors(value):
        rows = [_stack(one, dtype) for one in value]
        for row in rows:
            if row.shape != rows[0].shape:
                raise _unequal(rows[0].shape, row.shape)
        return jnp.stack(rows)
    is_array = isinstance(value, Symbolic | jax.Array)
    # A cast of random keys, which have no other dtype, would be an error.
    is_same = is_array and value.dtype == dtype
    return jnp.asarray(value if is_array else as_array(value, dtype), None if is_same else dtype)


def _stack_on_host(graph: Any, value: Any, dtype: Any, name: str) -> Any:
    if has_tensors(value):
        rows = [_stack_on_host(graph, one, dtype, name) for one in value]
        aval = host_abstract(_shape_of_rows([row.aval.shape for row in rows]), dtype)
        return call(graph, "stack", rows, [aval], name=name).outputs[0]
    if not isinstance(value, Symbolic):
        return graph.constant(value, dtype, name=name, on_host=True)
    tensor = graph.as_tensor(value)
    if tensor.dtype == dtype:
        return tensor
    if string in (tensor.dtype, dtype):
        raise TypeError(f"expected a tensor of dtype {dtype.name} in a list, got {tensor!r}")
    aval = host_abstract(tensor.aval.shape, dtype)
    attributes = {"dtype": dtype.name}
    return call(graph, "cast", [tensor], [aval], name="Cast", attributes=attributes).outputs[0]


def _shape_of_rows(shapes: Sequence[Any]) -> tuple[Any, ...] | None:
    """Returns the shape of rows that are stacked, as far as it is known. Raises as `packed`."""
    known = [shape for shape in shapes if shape is not None]
    for shape in known:
        if not is_compatible(known[0], shape):
            raise _unequal(known[0], shape)
    if not known:
        return None
    sizes = [next(filter(is_known, column), column[0]) for column in zip(*known, strict=True)]
    return (len(shapes), *sizes)


def _dtype_of(values: Any, dtype: Any) -> Any:
    """Returns the requested dtype, or else that of the tensors.

    Raises TypeError if no dtype is requested and that of two tensors differs.
    """
    if dtype is not None:
        return host_dtype(dtype)
    tensors = [leaf for leaf in leaves_of(values) if isinstance(leaf, Symbolic | jax.Array)]
    first = tensors[0]
    for tensor in tensors:
        if tensor.dtype != first.dtype:
            raise TypeError(
                "expected tensors of one dtype in a list that is to be one tensor, got "
                f"{first.dtype.name} and {tensor.dtype.name} ({tensor!r:.80}); cast one of them"
            )
    return first.dtype


def _unequal(one: Sequence[Any], other: Sequence[Any]) -> ValueError:
    return ValueError(
        "expected values of one shape in a list that is to be one tensor, got the shapes "
        f"{tuple(one)} and {tuple(other)}"
    )


def _is_on_host(tensor: Any) -> bool:
    return isinstance(tensor.aval, HostArray) and not is_unranked(tensor.aval)

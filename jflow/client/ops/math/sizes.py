"""Shapes that are given as tensors: the sizes that XLA needs as numbers or symbols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.export
import numpy as np

from jflow.base.values import abstract, as_dtype, is_static, plain_shape, plain_size, unknown_dim
from jflow.compiler.graph import Symbolic, Tensor
from jflow.compiler.graph.calls import call
from jflow.compiler.graph.shape_values import shape_value


def sizes_of(shape: Any) -> tuple[Any, ...]:
    """Returns the sizes that a shape stands for.

    A size that only a step knows becomes a symbol, which the step sets before it runs what uses it.

    Args:
      shape: a tuple or list of sizes, a `TensorShape`, an array, or an integer tensor of one
        dimension. A size is an int, a size of a tensor's shape, or an integer tensor.

    Raises:
      ValueError: if the number of sizes is unknown, or a size is None.
      TypeError: if it is no shape.
    """
    sizes = plain_shape(shape)
    if isinstance(sizes, Symbolic):
        return _sizes_in(sizes.to_tensor())
    if sizes is None:
        raise ValueError("expected a shape of known rank, got None")
    if isinstance(sizes, np.ndarray | jax.Array):
        sizes = np.asarray(sizes).tolist()
    return tuple(map(size_of, sizes if isinstance(sizes, Sequence) else [sizes]))


def size_of(value: Any) -> Any:
    """Returns one size: an int or a symbol; see `sizes_of`."""
    if isinstance(value, Symbolic):
        return _sizes_in(value.to_tensor())[0]
    if value is None:
        raise ValueError("a size is None: give a number, a size of another tensor, or a tensor")
    size = plain_size(value)
    return size if jax.export.is_symbolic_dim(size) else int(size)


def known_int(value: Any, what: str) -> int:
    """Returns an integer argument that has to be known when the graph is built.

    Args:
      value: an int, or an integer tensor whose value follows from the graph.
      what: the argument, for the message.

    Raises:
      ValueError: if only a step knows it.
    """
    number = shape_value(value.to_tensor())[()] if isinstance(value, Symbolic) else value
    if number is None or jax.export.is_symbolic_dim(number):
        raise ValueError(f"expected {what} to be known when the graph is built, got {value!r}")
    return int(number)


def known_ints(values: Any, what: str) -> list[int]:
    """Returns integers that have to be known when the graph is built; see `known_int`."""
    if isinstance(values, Symbolic):
        numbers = np.ravel(shape_value(values.to_tensor())).tolist()
        return [known_int(number, what) for number in numbers]
    if isinstance(values, np.ndarray | jax.Array):
        values = np.asarray(values).tolist()
    return [known_int(x, what) for x in (values if isinstance(values, Sequence) else [values])]


def _sizes_in(tensor: Tensor) -> tuple[Any, ...]:
    if not np.issubdtype(as_dtype(tensor.dtype), np.integer):
        raise TypeError(f"expected a shape of integers, got {tensor!r}")
    if not is_static(tensor.aval.shape) or tensor.ndim > 1:
        raise ValueError(
            f"expected a shape of known rank, got {tensor!r}; zeros_like, ones_like and reshape "
            "to the shape of a tensor need none"
        )
    sizes = np.ravel(shape_value(tensor)).tolist()
    return tuple(
        size_in_step(tensor[i] if tensor.ndim else tensor) if size is None else size
        for i, size in enumerate(sizes)
    )


def size_in_step(value: Tensor) -> Any:
    """Returns a symbol for a size that is the value of a scalar in a step."""
    n = unknown_dim()
    # What has the size has no elements, so nothing but the size is sent.
    aval = abstract((n, 0), np.dtype(bool))
    call(value.graph, "size_source", [value], [aval], name="size")
    return n

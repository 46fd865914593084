"""Sums of several tensors."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce
from typing import Any

import jax

from jflow.base.values import as_dtype, as_shape, is_compatible
from jflow.client.ops.arrays import convert_to_tensor, identity
from jflow.compiler.graph import Symbolic, Tensor


def add_n(inputs: Sequence[Any], name: str | None = None) -> Any:
    """Returns the sum of tensors of one dtype and shape.

    Args:
      inputs: tensors, variables, `IndexedSlices`, which count as whole tensors, or what `constant`
        takes; in a function that JAX traces, arrays.
      name: name of the operation; None for "AddN", or for no operation if there is one input.

    Raises:
      ValueError: if there is no input, or the shapes differ.
      TypeError: if the dtypes differ.
    """
    if isinstance(inputs, Symbolic | jax.Array) or not inputs:
        raise ValueError(
            "inputs must be an iterable of at least one Tensor or IndexedSlices with the same "
            f"dtype and shape, got {inputs!r:.80}"
        )
    if any(isinstance(one, jax.Array) for one in inputs):
        return _sum(*inputs)
    tensors = [convert_to_tensor(one) for one in inputs]
    first = tensors[0]
    for other in tensors[1:]:
        if other.dtype != first.dtype:
            raise TypeError(
                f"add_n needs tensors of one dtype, got {first!r} and {other!r}; jflow.cast one"
            )
        if not is_compatible(first.aval.shape, other.aval.shape):
            raise ValueError(f"add_n needs tensors of one shape, got {first!r} and {other!r}")
    if len(tensors) == 1:
        return first if name is None else identity(first, name)
    total: Tensor = first.graph.apply(_sum, tuple(tensors), name=name or "AddN")
    return total


def accumulate_n(
    inputs: Sequence[Any], shape: Any = None, tensor_dtype: Any = None, name: str | None = None
) -> Any:
    """Returns the sum of tensors as `add_n`, which XLA computes in place.

    Args:
      inputs, name: as for `add_n`.
      shape, tensor_dtype: what the tensors have to have; None for what they have.

    Raises:
      ValueError, TypeError: as `add_n`, or if the shape or dtype is another one.
    """
    total = add_n(inputs, name)
    if shape is not None and not is_compatible(as_shape(shape), tuple(total.shape)):
        raise ValueError(f"shapes {shape} and {total.shape} are not compatible")
    if tensor_dtype is not None and as_dtype(tensor_dtype) != total.dtype:
        raise TypeError(f"expected tensors of {as_dtype(tensor_dtype)}, got {total.dtype}")
    return total


def _sum(*values: Any) -> Any:
    return reduce(operator.add, values)

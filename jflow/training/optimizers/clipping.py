"""Gradients of limited size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from jflow.client.ops import IndexedSlices
from jflow.client.ops.arrays import as_scalar
from jflow.client.ops.math.elementwise import larger
from jflow.compiler.graph import Symbolic, Tensor, get_default_graph


def global_norm(t_list: Sequence[Any], name: str = "global_norm") -> Tensor:
    """Returns the root of the sum of squares of all elements of some tensors.

    Each sum of squares may be computed where its tensor is. Of an `IndexedSlices` the elements are
    those of its values, even where several are for one row.

    Args:
      t_list: tensors; None for one that is missing.
      name: name of the operation.

    Raises:
      ValueError: if there are no tensors.
    """
    squares = [_apply(_square_sum, _values(t), name=name) for t in t_list if t is not None]
    if not squares:
        raise ValueError("expected at least one tensor to take the norm of, got none")
    norm: Tensor = _apply(_root_of_sum, *squares, name=name)
    return norm


def clip_by_global_norm(
    t_list: Sequence[Any],
    clip_norm: Any,
    use_norm: Any = None,
    name: str = "clip_by_global_norm",
) -> tuple[list[Any], Any]:
    """Scales tensors together, so that their global norm is at most a limit.

    Pascanu et al., "On the difficulty of training recurrent neural networks" (2013).

    Args:
      t_list: tensors; None for one that is missing, which stays None.
      clip_norm: the limit, a positive scalar.
      use_norm: their norm, if it is known.
      name: name of the operations.

    Returns:
      The scaled tensors, NaN if the norm is not finite, and the norm before.
    """
    norm = global_norm(t_list) if use_norm is None else as_scalar(use_norm)
    clip_norm = as_scalar(clip_norm)
    scaled = [
        None
        if t is None
        else _with_values(t, _apply(_limited, _values(t), norm, clip_norm, name=name))
        for t in t_list
    ]
    return scaled, norm


def clip_by_norm(t: Any, clip_norm: Any, axes: Any = None, name: str = "clip_by_norm") -> Tensor:
    """Scales a tensor so that its norm is at most a limit.

    Args:
      t: T[*shape].
      clip_norm: the limit, positive, of a shape that broadcasts to that of `t`.
      axes: dimensions over which a norm is taken; None for all.
      name: name of the operation.

    Raises:
      ValueError: if the limit has another shape.
    """

    def clipped(value: Any, limit: Any) -> Any:
        if jnp.broadcast_shapes(value.shape, jnp.shape(limit)) != value.shape:
            raise ValueError(
                f"clip_norm of shape {jnp.shape(limit)} does not broadcast to the shape "
                f"{value.shape} of the tensor, which the result has"
            )
        squares = jnp.sum(value * value, axis=axes, keepdims=True)
        # The root has no derivative at zero.
        has_norm = squares > 0
        norm = jnp.where(has_norm, jnp.sqrt(jnp.where(has_norm, squares, 1)), squares)
        return value * (limit / larger(norm, limit))

    tensor: Tensor = _apply(clipped, t, clip_norm, name=name)
    if isinstance(t, Symbolic):
        tensor.set_shape(t.shape)  # A limit of unknown rank does not change it
    return tensor


def _values(tensor: Any) -> Any:
    return tensor.values if isinstance(tensor, IndexedSlices) else tensor


def _with_values(tensor: Any, values: Any) -> Any:
    is_rows = isinstance(tensor, IndexedSlices)
    return IndexedSlices(values, tensor.indices, tensor.shape) if is_rows else values


def _square_sum(value: Any) -> Any:
    return jnp.sum(jnp.square(jnp.abs(value)))


def _root_of_sum(*squares: Any) -> Any:
    return jnp.sqrt(sum(squares))


def _limited(value: Any, norm: Any, limit: Any) -> Any:
    scale = jnp.where(jnp.isfinite(norm), limit / jnp.maximum(norm, limit), jnp.nan)
    return (value * scale).astype(value.dtype)


def _apply(fun: Any, *args: Any, name: str) -> Any:
    return get_default_graph().apply(fun, args, name=name)

"""Range checks of indices, as a report that a step evaluates and as a guard inside a program."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np


def report_indices(indices: jax.Array, sizes: tuple[int, ...]) -> jax.Array:
    """Reports the first index that is out of range.

    Args:
      indices: i[..., len(sizes)], indices into dimensions; i[...] for a single one.
      sizes: sizes of these dimensions.

    Returns:
      i32[4]: 1 if an index is out of range, its position, its value, and the size of its dimension.
    """
    flat = jnp.asarray(_wide(indices)).reshape(-1, len(sizes))
    bad = _is_outside(flat, sizes)
    row, column = jnp.unravel_index(jnp.argmax(bad), bad.shape)
    size = jnp.array(sizes, jnp.int32)[column]
    return jnp.stack([bad.any(), row, flat[row, column], size]).astype(jnp.int32)


def guard_indices(indices: jax.Array, sizes: tuple[int, ...]) -> jax.Array:
    """Makes all indices point outside if one of them does, so that a scatter can drop all updates.

    Args:
      indices, sizes: as for `report_indices`.

    Returns:
      i32[*indices.shape]: the indices, or 2**31 - 1 in place of each.
    """
    bad = _is_outside(_wide(indices).reshape(-1, len(sizes)), sizes)
    return jnp.where(bad.any(), np.int32(2**31 - 1), indices.astype(np.int32))


def _wide(indices: jax.Array) -> jax.Array:
    """The indices in a dtype that can hold a size, which the dtype of small ones may not."""
    return indices.astype(jnp.int32) if indices.dtype.itemsize < 4 else indices


def _is_outside(flat: jax.Array, sizes: tuple[int, ...]) -> jax.Array:
    """Whether each of i[n, len(sizes)] is out of range: bool[n, len(sizes)]."""
    return (flat < 0) | (flat >= jnp.array(sizes, jnp.int32).astype(flat.dtype))

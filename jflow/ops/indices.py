"""A range check of indices whose result a program computes and a step evaluates."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def report_indices(indices: jax.Array, sizes: tuple[int, ...]) -> jax.Array:
    """Reports the first index that is out of range.

    Args:
      indices: i[..., len(sizes)], indices into dimensions; i[...] for a single one.
      sizes: sizes of these dimensions.

    Returns:
      i32[4]: 1 if an index is out of range, its position, its value, and the size of its dimension.
    """
    flat = indices.reshape(-1, len(sizes))
    if flat.dtype.itemsize < 4:
        flat = flat.astype(jnp.int32)  # the dtype of small indices may not hold a size
    limits = jnp.array(sizes, jnp.int32)
    bad = (flat < 0) | (flat >= limits.astype(flat.dtype))
    row, column = jnp.unravel_index(jnp.argmax(bad), bad.shape)
    return jnp.stack([bad.any(), row, flat[row, column], limits[column]]).astype(jnp.int32)

"""Whether indices are in range, as a program can tell and a step can check."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def report_indices(indices: jax.Array, sizes: tuple[int, ...]) -> jax.Array:
    """i32[4]: whether an index is out of range, the first such one's position, it, and the size.

    Args:
      indices: i[..., len(sizes)], indices into dimensions; i[...] for a single one.
      sizes: of these dimensions.
    """
    flat = indices.reshape(-1, len(sizes))
    if flat.dtype.itemsize < 4:
        flat = flat.astype(jnp.int32)  # a size may be beyond the range of small indices
    limits = jnp.array(sizes, jnp.int32)
    bad = (flat < 0) | (flat >= limits.astype(flat.dtype))
    row, column = jnp.unravel_index(jnp.argmax(bad), bad.shape)
    return jnp.stack([bad.any(), row, flat[row, column], limits[column]]).astype(jnp.int32)

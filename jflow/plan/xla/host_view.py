"""Values of devices in the memory of the host, without effect on the arrays of JAX."""

from __future__ import annotations

import jax
import numpy as np

from jflow.base.values import ALIGNMENT, Array, BlockArray, SentArray


def host_view(value: jax.Array) -> Array:
    """Returns a computed value as a NumPy array that its JAX array does not cache.

    `np.asarray` may leave the view in the array object of a variable. Every later update of the
    variable would make a copy then.

    Returns:
      On a CPU a view of the memory of one device, if that has the whole value; else a copy.
    """
    if not value.is_fully_replicated:
        return _gathered(value)
    try:
        return np.asarray(memoryview(value))
    except BufferError:  # it is not in the memory of the host, or of a dtype such as bfloat16
        return np.asarray(value.addressable_data(0))


def host_blocks(value: jax.Array) -> SentArray:
    """Returns a computed value to be sent; in blocks if each device has some of its rows.

    Returns:
      On a CPU views of the memory of the devices, unless other dimensions than the first one are
      divided, or a part does not fill a multiple of `ALIGNMENT` bytes; else a copy.
    """
    parts = [shard for shard in value.addressable_shards if shard.replica_id == 0]
    are_rows = all(one.data.shape[1:] == value.shape[1:] for one in parts)
    if len(parts) == 1 or not are_rows or parts[0].data.nbytes % ALIGNMENT:
        return host_view(value)
    parts.sort(key=lambda one: one.index[0].start or 0)
    return BlockArray([host_view(one.data) for one in parts])


def _gathered(value: jax.Array) -> Array:
    """Returns a copy of a value, each part of which comes from one of the devices that have it."""
    whole = np.empty(value.shape, value.dtype)
    for shard in value.addressable_shards:
        if shard.replica_id == 0:
            whole[shard.index] = shard.data
    return whole

"""`hash_ids`: rows of a table for keys of any kind."""

from __future__ import annotations

import hashlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jflow.compiler.graph import Tensor

_MOST_ROWS = 2**31 - 1


def hash_ids(keys: Any, num_embeddings: int, salt: int = 0) -> Any:
    """Returns a row for each key: equal ones for equal keys, and any for different ones.

    The same key has the same row in each program and version. Different keys may have one row
    ("collide"): of n keys in a table of m rows some n² / 2m pairs do.

    Args:
      keys: integers of any shape, also negative ones and of 64 bits, or (nested) sequences of str
        or bytes. In a function that JAX traces, integers, of as many bits as JAX has there: 32
        unless `jax_enable_x64` is set.
      num_embeddings: the number of rows.
      salt: an integer that makes another function of it, for a second table.

    Returns:
      i32[*keys.shape], from 0 to num_embeddings - 1; a NumPy array unless the keys are of JAX.

    Raises:
      TypeError: if the keys are neither integers nor text.
      ValueError: if there is no row, or there are 2**31 or more.
    """
    if not 0 < num_embeddings <= _MOST_ROWS:
        raise ValueError(f"expected a number of embeddings up to 2**31 - 1, got {num_embeddings}")
    if isinstance(keys, Tensor):
        hashed: Tensor = keys.graph.apply(
            lambda x: hash_ids(x, num_embeddings, salt), (keys,), name="hash_ids"
        )
        return hashed
    xp: Any = jnp if isinstance(keys, jax.Array) else np
    values = keys if xp is jnp else _as_integers(keys)
    if not jnp.issubdtype(values.dtype, jnp.integer):
        raise TypeError(f"expected integers or text as keys, got {values.dtype.name}")
    low, high = _halves(values, xp)
    with np.errstate(over="ignore"):
        mixed = _mixed(low ^ _mixed(high ^ xp.uint32(salt & 0xFFFFFFFF), xp), xp)
    return (mixed % xp.uint32(num_embeddings)).astype(xp.int32)


def _as_integers(keys: Any) -> Any:
    """Returns keys as an array of integers: themselves, or 64 bits of a digest of each text."""
    is_array = isinstance(keys, np.ndarray | np.generic)
    if is_array and keys.dtype.kind not in "OSU":
        return keys
    try:
        values = keys.astype(object) if is_array else np.array(keys, dtype=object)
    except ValueError:
        raise TypeError(f"expected integers or text as keys, got {keys!r:.80}") from None
    if not values.size:
        return np.zeros(values.shape, np.int64)
    flat = values.ravel().tolist()
    if all(isinstance(key, int | np.integer) for key in flat):
        return np.array(flat).reshape(values.shape)
    return np.array([_digest(key) for key in flat], np.uint64).reshape(values.shape)


def _digest(text: Any) -> int:
    """Returns 64 bits of a digest of a text."""
    data = text.encode() if isinstance(text, str) else text
    if not isinstance(data, bytes):
        raise TypeError(f"expected keys that are all integers or all text, got {text!r:.80}")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def _halves(values: Any, xp: Any) -> tuple[Any, Any]:
    """Returns the lower and the upper 32 bits of integers, as those of 64 bits."""
    if values.dtype.itemsize == 8:
        return values.astype(xp.uint32), (values >> 32).astype(xp.uint32)
    upper = xp.where(values < 0, xp.uint32(0xFFFFFFFF), xp.uint32(0))
    return values.astype(xp.int64 if xp is np else xp.int32).astype(xp.uint32), upper


def _mixed(x: Any, xp: Any) -> Any:
    """Mixes the bits of u32: the finalizer of MurmurHash3, by A. Appleby (public domain)."""
    x = (x ^ (x >> 16)) * xp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * xp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)

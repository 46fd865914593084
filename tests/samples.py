"""Values of every dtype, and what it means that two of them are the same."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np

from jflow.base.values import NUMBERS, is_string_tensor

KEYS = ("threefry2x32", "rbg", "unsafe_rbg")
"""JAX's implementations of random keys."""

WIDE = ("int64", "uint64", "float64", "complex128")
NARROW = tuple(name for name in NUMBERS if name not in WIDE)


def allowing(name: str) -> AbstractContextManager[Any]:
    """A block in which JAX has the dtype."""
    return jax.enable_x64(name in WIDE)


def numbers(name: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    """An array of any bits that its dtype can have."""
    dtype, rng = NUMBERS[name], np.random.default_rng(seed)
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(dtype)
    if name.startswith(("int2", "int4", "uint2", "uint4")):
        least = 0 if name.startswith("u") else -(2 ** (int(name[3]) - 1))
        return rng.integers(least, least + 2 ** int(name.lstrip("uint")), shape).astype(dtype)
    if name.startswith("float4"):
        return rng.integers(0, 16, shape, np.uint8).view(dtype)
    n_bytes = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(rng.bytes(n_bytes), dtype).reshape(shape)


def keys(impl: str, shape: tuple[int, ...], seed: int = 0) -> jax.Array:
    """Random keys of JAX."""
    return jax.random.split(jax.random.key(seed, impl=impl), shape)


def assert_same(got: Any, sent: Any) -> None:
    """Checks kind, shape and every bit."""
    assert (got.dtype, got.shape) == (sent.dtype, sent.shape)
    if jax.dtypes.issubdtype(sent.dtype, jax.dtypes.prng_key):
        got, sent = jax.random.key_data(got), jax.random.key_data(sent)
    if is_string_tensor(sent):
        assert all(type(item) is bytes for item in got.flat)
        assert got.tolist() == sent.tolist()
    else:
        assert np.asarray(got).tobytes() == np.asarray(sent).tobytes()

"""Hashes of strings that are the same in every process, as TensorFlow has them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from jflow.base.values import Array
from jflow.errors import InvalidArgumentError
from jflow.state.records.extras import needed


def buckets_of(texts: Iterable[bytes], num_buckets: int) -> list[int]:
    """Returns the bucket of each text: its FarmHash Fingerprint64 modulo the number of buckets.

    Raises:
      InvalidArgumentError: if there is no bucket.
      UnimplementedError: if the package with the hash is not installed.
    """
    if num_buckets < 1:
        raise InvalidArgumentError(f"expected at least one bucket, got {num_buckets}")
    fingerprint = needed("farmhash", "hash", "hashing strings into buckets").fingerprint64
    return [fingerprint(text) % num_buckets for text in texts]


def string_to_hash_bucket_fast(strings: Array, *, num_buckets: int) -> tuple[Array]:
    """Returns the bucket of each string, i64[...]. Raises as `buckets_of`."""
    buckets = buckets_of(strings.reshape(-1).tolist(), num_buckets)
    return (np.array(buckets, np.int64).reshape(strings.shape),)

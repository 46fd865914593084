"""Which results of a step a ledger keeps, to answer a repeat with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jflow.base.values import Array, memory_bytes

MAX_KEPT_BYTES = 1 << 20
"""The largest size of the results that are kept of one step, in bytes."""

MAX_BYTES_OF_SESSION = 1 << 16
"""As `MAX_KEPT_BYTES`, for steps of a session that only a lost connection can repeat."""


def kept_results(values: Sequence[Array], *, is_saved: bool) -> tuple[Array, ...] | None:
    """Copies the results of a step; returns None if they are too large to keep."""
    limit = MAX_KEPT_BYTES if is_saved else MAX_BYTES_OF_SESSION
    copies, n_bytes = [], 0
    for value in values:  # not a generator, each step of which would be a call of a function
        n_bytes += value.nbytes
        if n_bytes > limit:
            return None
        # A copy: it may be a view of a variable, which a lease would make slow to update.
        copies.append(np.array(value))
    return tuple(copies) if total_bytes(copies) <= limit else None


def total_bytes(values: Sequence[Array]) -> int:
    """Returns the memory of arrays in bytes, fast for arrays of numbers."""
    n_bytes = 0
    for one in values:
        n_bytes += memory_bytes(one) if one.dtype.hasobject else one.nbytes
    return n_bytes

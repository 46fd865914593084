"""Results that are kept, so that a repeat of their step gets them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jflow.values import Array, is_host, raw_bytes

MAX_KEPT_BYTES = 1 << 20
"""Results of one step are kept up to this size."""

MAX_BYTES_OF_SESSION = 1 << 16
"""As `MAX_KEPT_BYTES`, for steps of a session that only a lost connection can repeat."""


def kept_results(values: Sequence[Array], *, is_saved: bool) -> tuple[Array, ...] | None:
    """Copies of the results of a step; None if they are too large to keep."""
    limit = MAX_KEPT_BYTES if is_saved else MAX_BYTES_OF_SESSION
    if sum(value.nbytes for value in values) > limit or n_bytes_of(values) > limit:
        return None
    # Copies: a fetched value may be a view of a variable, which a lease would make slow to update.
    return tuple(np.array(value) for value in values)


def n_bytes_of(values: Sequence[Array]) -> int:
    """The size of arrays, with the text of strings, in bytes."""
    return sum(raw_bytes(one).nbytes if is_host(one) else one.nbytes for one in values)

"""The value of an eager variable, as its repr shows it."""

from __future__ import annotations

import time
from typing import Any, cast

import jax
import numpy as np

MAX_COPIED_BYTES = 1 << 20
"""A larger value on an accelerator is not shown, because that requires a copy."""

_MAX_WAIT_S = 0.2
_PAUSE_S = 0.001


def preview(array: jax.Array | None) -> str | None:
    """Formats a value in one line; the middle of a long one is left out.

    Args:
      array: the value in this process, or None. It may not be computed yet, and an update may
        donate its buffer at any time.

    Returns:
      The text; None if there is no value in this process, or it is too large.
    """
    if array is None:
        return None
    try:
        if not _comes(array):
            return "(not computed yet)"
        value = _on_host(array)
        if value is None:
            return None
        text = np.array2string(value, threshold=16, edgeitems=2, separator=" ")
    except Exception:  # the buffer was donated, for which JAX has several errors
        return None
    return " ".join(text.split()).replace("[ ", "[")


def _comes(array: jax.Array) -> bool:
    """Whether the value is computed within a short time."""
    deadline = time.monotonic() + _MAX_WAIT_S
    while not cast(Any, array).is_ready():
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_S)
    return True


def _on_host(array: jax.Array) -> np.ndarray[Any, Any] | None:
    """The elements on the host, without a copy where possible."""
    try:
        # Unlike np.asarray, this does not cache a view that would make the next update copy.
        return np.from_dlpack(cast(Any, array))
    except (BufferError, RuntimeError, TypeError):  # on an accelerator, or not a dtype of DLPack
        return np.asarray(array) if array.nbytes <= MAX_COPIED_BYTES else None

"""The value of an eager variable as its repr shows it."""

from __future__ import annotations

import time
from typing import Any, cast

import jax
import numpy as np

MAX_COPIED_BYTES = 1 << 20
"""A larger value is shown only where that takes no copy, so not if it is on an accelerator."""

_MAX_WAIT_S = 0.2
_PAUSE_S = 0.001


def preview(array: jax.Array | None) -> str | None:
    """A value in one line, the middle of a long one left out.

    Args:
      array: what this process has of the value; it may still be computed, and an update may take
        its buffer at any time.

    Returns:
      The text; None if there is no value here, or it is too large.
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
    except Exception:  # an update has taken the buffer, for which JAX has several errors
        return None
    return " ".join(text.split()).replace("[ ", "[")


def _comes(array: jax.Array) -> bool:
    """Whether the value is computed, or soon will be."""
    deadline = time.monotonic() + _MAX_WAIT_S
    while not cast(Any, array).is_ready():
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_S)
    return True


def _on_host(array: jax.Array) -> np.ndarray[Any, Any] | None:
    """The elements, in their own memory if that can be."""
    try:
        # Unlike np.asarray, this leaves nothing behind that would make the next update copy.
        return np.from_dlpack(cast(Any, array))
    except (
        BufferError,
        RuntimeError,
        TypeError,
    ):  # on an accelerator, or of a type that DLPack has not
        return np.asarray(array) if array.nbytes <= MAX_COPIED_BYTES else None

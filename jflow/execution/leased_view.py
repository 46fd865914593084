"""NumPy views of variables' memory under a lease: a fetched variable is sent without a copy."""

from __future__ import annotations

import weakref

import numpy as np

from jflow.resources import Lease
from jflow.values import Array


class _Memory:
    """Memory behind NumPy's array interface; every array that views any of it refers to this."""

    def __init__(self, data: Array) -> None:
        self.__array_interface__ = data.__array_interface__
        self._data = data


def leased_view(view: Array, lease: Lease) -> Array:
    """The same array; `lease` is released with the last reference to it or to a view of it."""
    memory = _Memory(view.reshape(-1).view(np.uint8))
    weakref.finalize(memory, lease.release).atexit = False
    return np.asarray(memory).view(view.dtype).reshape(view.shape)

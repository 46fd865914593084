"""NumPy views of the memory of variables under a lease, to send a variable without a copy."""

from __future__ import annotations

import weakref

import numpy as np

from jflow.resources import Lease
from jflow.values import Array


class _Memory:
    """Memory behind NumPy's array interface; every array that views part of it refers to this."""

    def __init__(self, data: Array) -> None:
        self.__array_interface__ = data.__array_interface__
        self._data = data


def leased_view(view: Array, lease: Lease) -> Array:
    """Returns the same array; the last reference to it or to a view of it releases `lease`."""
    memory = _Memory(view.reshape(-1).view(np.uint8))
    weakref.finalize(memory, lease.release).atexit = False
    return np.asarray(memory).view(view.dtype).reshape(view.shape)

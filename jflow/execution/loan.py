"""Variables' memory lent to NumPy: a fetched variable is sent from where it lies."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from jflow.resources import Lease

Array = np.ndarray[Any, Any]


class _Memory:
    """Memory as NumPy asks for it; every array that shows any of it refers to this object."""

    def __init__(self, data: Array) -> None:
        self.__array_interface__ = data.__array_interface__
        self._data = data


def lent(view: Array, lease: Lease) -> Array:
    """The same array; `lease` is released when neither it nor anything cut from it is left."""
    memory = _Memory(view.reshape(-1).view(np.uint8))
    weakref.finalize(memory, lease.release).atexit = False
    return np.asarray(memory).view(view.dtype).reshape(view.shape)

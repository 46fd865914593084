"""NumPy views of the memory of variables under a lease, to send a variable without a copy."""

from __future__ import annotations

import weakref

import jax
import numpy as np

from jflow.base.values import Array
from jflow.state.resources import Lease


def unkept_view(value: jax.Array) -> Array:
    """A NumPy array of a computed value that its array object does not keep; a view on a CPU.

    `np.asarray` may leave the view in the array object of a variable. Every later update of the
    variable would make a copy then.
    """
    try:
        return np.asarray(memoryview(value))
    except BufferError:  # it is not in the memory of the host, or of a dtype such as bfloat16
        return np.asarray(value.addressable_data(0))


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

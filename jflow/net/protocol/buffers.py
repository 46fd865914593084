"""Aligned buffers for received messages; a pool reuses those of large messages.

The first touch of fresh memory costs more than moving the bytes that it receives. So the buffer of
a large message goes back to a pool when the last array that views it is gone, and a later message
of about its size fills it. So a buffer is never written while any array, of NumPy or of JAX, refers
to it: each has a reference to the `_ViewedMemory` of the buffer, directly or through other arrays.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from jflow.base.values import ALIGNMENT, Array
from jflow.errors import ResourceExhaustedError
from jflow.net.protocol.ticker import Ticker, ticker

MIN_POOLED_BYTES = 1 << 20
"""Smaller buffers come from the allocator, which keeps the memory of those itself."""

MAX_FREE_BYTES = 256 << 20
"""How much memory a process keeps for later messages."""

IDLE_S = 5.0
"""A buffer that nothing used for once to twice this time is freed, in seconds."""


def aligned_buffer(n_bytes: int) -> Array:
    """Allocates uninitialized memory, u8[n_bytes], whose address is a multiple of 64.

    Raises:
      ResourceExhaustedError: if there is not so much.
    """
    try:
        buffer = np.empty(n_bytes + ALIGNMENT, np.uint8)
    except MemoryError:
        raise ResourceExhaustedError(f"cannot allocate {n_bytes} bytes for a message") from None
    start = -buffer.ctypes.data % ALIGNMENT
    return buffer[start : start + n_bytes]


class _ViewedMemory:
    """Exposes memory to NumPy; every array that views a part of it references this object."""

    __slots__ = ("__array_interface__", "__weakref__", "_memory")

    def __init__(self, memory: Array) -> None:
        self.__array_interface__ = memory.__array_interface__
        self._memory = memory


def view_of(memory: Array, n_bytes: int, give_back: Callable[..., object], *args: Any) -> Array:
    """Returns a buffer's first `n_bytes` as an array; calls `give_back` when nothing refers to it.

    Args:
      memory: u8, at least of that size.
      n_bytes: the size.
      give_back: called with `args` when no array refers to the memory any more, on any thread, also
        in the middle of anything that this thread does: it must not wait for a lock.
      *args: its arguments.
    """
    owner = _ViewedMemory(memory)
    weakref.finalize(owner, give_back, *args).atexit = False
    return np.asarray(owner)[:n_bytes]


class BufferPool:
    """A pool of buffers for large messages; thread-safe.

    Buffers are given back by finalizers, which may run at any point of any thread, also while that
    thread is in a method of the pool. So giving back never waits for the lock: if it is held, the
    memory is freed instead.

    Args:
      max_bytes: how much memory is kept for later messages.
      sweeper: calls `sweep` while there may be something to sweep; None leaves that to the caller.
    """

    def __init__(self, max_bytes: int = MAX_FREE_BYTES, sweeper: Ticker | None = None) -> None:
        self._max_bytes = max_bytes
        self._sweeper = sweeper
        self._lock = threading.Lock()
        self._free: list[Array] = []
        self._n_idle = 0  # how many of them, the oldest ones, were free at the last sweep
        self._is_swept = False
        self._was_used = False

    @property
    def n_free_bytes(self) -> int:
        """The total size of the free buffers, in bytes."""
        return sum(memory.nbytes for memory in self._free)

    def allocate(self, n_bytes: int) -> Array:
        """Returns a buffer with arbitrary contents, u8[n_bytes], aligned to 64 bytes.

        Raises:
          ResourceExhaustedError: if there is not so much.
        """
        capacity = capacity_for(n_bytes)
        with self._lock:
            memory = self._pop_free(capacity)
            self._was_used = True
            if not self._is_swept:
                self._is_swept = True
                if self._sweeper is not None:
                    self._sweeper.add(self.sweep)
        if memory is None:
            memory = aligned_buffer(capacity)
        return view_of(memory, n_bytes, self._give_back, memory)

    def sweep(self) -> None:
        """Frees the buffers that have not been used since the last sweep."""
        with self._lock:
            del self._free[: self._n_idle]
            self._n_idle = len(self._free)
            if not self._free and not self._was_used:
                # Nothing is kept from now on until memory is taken again.
                self._is_swept = False
                if self._sweeper is not None:
                    self._sweeper.remove(self.sweep)
            self._was_used = False

    def _pop_free(self, capacity: int) -> Array | None:
        """Removes and returns the last used free buffer of a capacity; None if there is none."""
        for number in range(len(self._free) - 1, -1, -1):
            if self._free[number].nbytes == capacity:
                self._n_idle -= number < self._n_idle
                return self._free.pop(number)
        return None

    def _give_back(self, memory: Array) -> None:
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._is_swept and memory.nbytes <= self._max_bytes:
                self._free.append(memory)
                while self.n_free_bytes > self._max_bytes:
                    del self._free[0]
                    self._n_idle = max(self._n_idle - 1, 0)
        finally:
            self._lock.release()


def capacity_for(n_bytes: int) -> int:
    """Returns the buffer size for a message, rounded up by at most 1/8 to make reuse likely."""
    step = 1 << max(n_bytes.bit_length() - 4, ALIGNMENT.bit_length() - 1)
    return -(-n_bytes // step) * step


_POOL = BufferPool(sweeper=ticker(IDLE_S))


def receive_buffer(n_bytes: int) -> Array:
    """Returns a buffer for a message, u8[n_bytes], aligned to 64 bytes, with arbitrary contents.

    Raises:
      ResourceExhaustedError: if there is not so much.
    """
    return aligned_buffer(n_bytes) if n_bytes < MIN_POOLED_BYTES else _POOL.allocate(n_bytes)

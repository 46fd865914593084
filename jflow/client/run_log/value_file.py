"""`ValueFile`: the bytes of the values of a log, which are written once and compared later."""

from __future__ import annotations

import ctypes
import mmap
import os

import numpy as np

from jflow.base.files import naming_file
from jflow.base.values import Array

_SEGMENT_BYTES = range(1 << 20, 64 << 20)
"""The sizes of segments; each doubles the file."""

_ALIGNMENT = 64

_RESERVE_BYTES = mmap.PAGESIZE
"""What a file has on the disk behind its segments, so that the log has room for its end."""


class ValueFile:
    """A file that only grows, in memory that the system writes to the disk.

    It is mapped in segments, so comparing a value with one in the file takes as long as comparing
    two arrays. What is in it survives the process, however that ends.

    Args:
      path: the file; another one there is overwritten.

    Attributes:
      n_bytes: its size without what it has in reserve.

    Raises:
      OSError: if it cannot be made; nothing is left of it.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._path = path
        self._segments: dict[int, Array] = {}
        self._start = self._capacity = self._size = self.n_bytes = 0
        try:
            self._allocate(0, 0)
        except OSError:
            os.close(self._file)
            os.unlink(path)
            raise

    def append(self, data: Array) -> tuple[int, Array]:
        """Appends bytes, u8[n] with n > 0.

        Returns:
          Where they begin, and a view of them in the file.

        Raises:
          OSError: if there is no room on the disk.
        """
        offset = -(-self.n_bytes // _ALIGNMENT) * _ALIGNMENT
        if offset + len(data) > self._capacity:
            offset = self._grow(len(data))
        segment = self._segments[self._start]
        view = segment[offset - self._start : offset - self._start + len(data)]
        view[:] = data
        self.n_bytes = offset + len(data)
        return offset, view

    def trim(self) -> None:
        """Gives back what the file has in reserve: at least a page, also of a full disk."""
        os.ftruncate(self._file, self.n_bytes)
        self._capacity = self._size = self.n_bytes

    def close(self) -> None:
        """Closes the file."""
        self.trim()
        self._segments = {}
        os.close(self._file)

    def _grow(self, n_bytes: int) -> int:
        """Makes a segment for at least so many bytes; returns where it begins."""
        granularity = mmap.ALLOCATIONGRANULARITY
        start = -(-self.n_bytes // granularity) * granularity
        sizes = _SEGMENT_BYTES
        length = max(n_bytes, min(max(self.n_bytes, sizes.start), sizes.stop))
        self._allocate(start, length)
        mapped = mmap.mmap(self._file, length, offset=start)
        self._segments[start] = np.frombuffer(mapped, np.uint8)
        self._start, self._capacity = start, start + length
        return start

    def _allocate(self, start: int, length: int) -> None:
        """Takes disk for a segment and the reserve; without, a full disk would end the process."""
        try:
            with naming_file(self._path):
                os.posix_fallocate(self._file, start, length + _RESERVE_BYTES)
        except OSError:
            os.ftruncate(self._file, self._size)  # some file systems keep what they had found
            raise
        self._size = start + length + _RESERVE_BYTES


_memcmp = ctypes.PyDLL(None).memcmp
"""Compares memory. NumPy needs memory for it, and lets other threads run, which takes longer."""
_memcmp.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t


def are_equal(one: Array, other: Array) -> bool:
    """Whether two arrays u8[n] of the same size are equal; both must be contiguous."""
    return not _memcmp(one.ctypes.data, other.ctypes.data, len(one))

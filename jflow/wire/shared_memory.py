"""The memory of segments: anonymous files that two processes map, and that none can cut short.

A process that reads behind the end of a mapped file is killed. So a segment is sealed: its size
never changes, and the end that receives it checks that before it uses it.
"""

from __future__ import annotations

import fcntl
import mmap
import os

import numpy as np

from jflow.errors import InvalidArgumentError, ResourceExhaustedError
from jflow.values import Array

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_TOUCHED_BYTES = 1 << 20


def make_shared(n_bytes: int) -> tuple[int, Array]:
    """A new segment whose memory is warm: its file descriptor, and the memory, u8[n_bytes].

    Raises:
      OSError: if there can be none.
    """
    descriptor = os.memfd_create("jflow segment", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, n_bytes)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        memory = _mapped(descriptor, n_bytes)
    except BaseException:
        os.close(descriptor)
        raise
    for start in range(0, n_bytes, _TOUCHED_BYTES):  # other threads run in between
        memory[start : start + _TOUCHED_BYTES] = 0
    return descriptor, memory


def open_shared(descriptor: int, n_bytes: int) -> Array:
    """The memory of a segment of another process, u8[n_bytes].

    Args:
      descriptor: its file descriptor; it can be closed afterwards.
      n_bytes: its size.

    Raises:
      InvalidArgumentError: if it is shorter, or its size can change.
      ResourceExhaustedError: if it cannot be mapped.
    """
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:
        seals = 0
    if not seals & fcntl.F_SEAL_SHRINK:
        raise InvalidArgumentError("the file of a segment is not sealed: it could be cut short")
    size = os.fstat(descriptor).st_size
    if size < n_bytes:
        raise InvalidArgumentError(f"a segment of {n_bytes} bytes has a file of {size}")
    try:
        return _mapped(descriptor, n_bytes)
    except OSError as error:
        raise ResourceExhaustedError(f"cannot map a segment of {n_bytes} bytes: {error}") from error


def _mapped(descriptor: int, n_bytes: int) -> Array:
    """The memory of a file, which is mapped as long as an array refers to it."""
    return np.frombuffer(mmap.mmap(descriptor, n_bytes), np.uint8)

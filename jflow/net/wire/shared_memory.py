"""The memory of segments: sealed anonymous files that two processes map.

A process that reads behind the end of a mapped file is killed. So a segment is sealed: its size
never changes, and the end that receives it checks that before it uses it.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import weakref

import numpy as np

from jflow.base.values import Array
from jflow.errors import InvalidArgumentError, ResourceExhaustedError

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_TOUCHED_BYTES = 1 << 20

MAX_MADE_BYTES = 2 << 30
"""How much memory the segments that a process has made take at most, those of all its streams."""

_made: dict[int, int] = {}
"""The sizes of the segments that this process has made, by their ids."""


_n_forks = 0


def n_forks() -> int:
    """Returns how many children this process has forked; each can read what was mapped then."""
    return _n_forks


def _count_fork() -> None:
    global _n_forks  # noqa: PLW0603 - there is one process
    _n_forks += 1


os.register_at_fork(before=_count_fork)


def make_shared(n_bytes: int) -> tuple[int, Array]:
    """Makes a segment and touches its memory; returns its descriptor and memory, u8[n_bytes].

    Raises:
      OSError: if there is no memory for it.
    """
    if sum(list(_made.values())) + n_bytes > MAX_MADE_BYTES:
        raise OSError(errno.ENOMEM, "this process has made enough segments")
    descriptor = os.memfd_create("jflow segment", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        # Its size and its memory: without, a first use that finds no memory ends the process.
        os.posix_fallocate(descriptor, 0, n_bytes)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        mapped = mmap.mmap(descriptor, n_bytes)
    except BaseException:
        os.close(descriptor)
        raise
    _made[id(mapped)] = n_bytes
    weakref.finalize(mapped, _made.pop, id(mapped), None).atexit = False
    memory = np.frombuffer(mapped, np.uint8)
    for start in range(0, n_bytes, _TOUCHED_BYTES):  # other threads run in between
        memory[start : start + _TOUCHED_BYTES] = 0
    return descriptor, memory


def open_shared(descriptor: int, n_bytes: int) -> Array:
    """Maps a segment of another process; returns its memory, u8[n_bytes].

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
        # Mapped as long as an array refers to it.
        return np.frombuffer(mmap.mmap(descriptor, n_bytes), np.uint8)
    except OSError as error:
        raise ResourceExhaustedError(f"cannot map a segment of {n_bytes} bytes: {error}") from error

"""`AppendedFile`: a file that grows, of which nothing is lost or torn when the disk is full."""

from __future__ import annotations

import os
from contextlib import suppress

from jflow.errors import OpError
from jflow.state.records.failures import failure

_BUFFER_BYTES = 1 << 16


class AppendedFile:
    """A new file that bytes are appended to, through a buffer.

    What finds no room on the disk stays in the buffer, and is written once there is room. Python's
    own buffered files lose a part of what they are given then, so what follows it cannot be read.

    Args:
      path: the file, which is replaced if it exists.

    Raises:
      OSError: if it cannot be made.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115 - `close` closes it
        self._buffer = bytearray()
        self._n_written = 0

    @property
    def is_closed(self) -> bool:
        """Whether the file is closed."""
        return self._file.closed

    def make_room(self) -> None:
        """Makes room in the buffer: what is appended next is taken, whatever the disk says.

        Raises:
          ResourceExhaustedError: if the buffer and the disk are full.
        """
        if len(self._buffer) >= _BUFFER_BYTES:
            self.flush()

    def append(self, data: bytes) -> None:
        """Appends bytes after `make_room`; an error in writing them is one of the next call."""
        self._buffer += data
        with suppress(OpError):
            self.make_room()

    def flush(self) -> None:
        """Passes what is in the buffer to the operating system.

        Raises:
          ResourceExhaustedError: if the disk is full; another call goes on where this one ended.
        """
        try:
            while self._buffer:
                n = self._file.write(self._buffer) or 0
                self._n_written += n
                del self._buffer[:n]
        except OSError as error:
            raise self._failure(error) from error

    def sync(self) -> None:
        """Writes all to the disk. Raises as `flush`."""
        self.flush()
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._failure(error) from error

    def close(self) -> None:
        """Closes the file once all is written. Raises as `flush`; then it is still open."""
        if not self._file.closed:
            self.flush()
            self._file.close()

    def _failure(self, error: OSError) -> OpError:
        return failure(error, self.path, f"written after {self._n_written} bytes")

    def __del__(self) -> None:
        with suppress(Exception):  # it may not have been made
            try:
                self.close()
            finally:
                self._file.close()

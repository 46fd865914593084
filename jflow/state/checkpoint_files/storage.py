"""The interface of checkpoint storage: local and remote directories."""

from __future__ import annotations

from abc import ABC, abstractmethod

from jflow.base.handles import Closing


class FileSink(ABC):
    """A new file, written sequentially."""

    @abstractmethod
    def write(self, data: memoryview) -> None:
        """Appends bytes.

        Raises:
          ResourceExhaustedError: if the disk or the quota is full.
        """

    @abstractmethod
    def finish(self) -> None:
        """Completes the file and waits until it is on disk. Raises as `write`."""

    @abstractmethod
    def discard(self) -> None:
        """Removes the file."""


class FileSource(Closing, ABC):
    """A file open for reading.

    Attributes:
      path: its name, for messages.
      n_bytes: its size when it was opened.
    """

    path: str
    n_bytes: int

    @abstractmethod
    def read_into(self, offset: int, data: memoryview) -> None:
        """Fills a buffer with the bytes from an offset on.

        Raises:
          DataLossError: if the file ends before.
        """

    @abstractmethod
    def close(self) -> None:
        """Closes the file."""

    def read(self, offset: int, n_bytes: int) -> bytes:
        """Returns bytes from an offset on, within the file's `n_bytes`. Raises as `read_into`."""
        data = bytearray(n_bytes)
        self.read_into(offset, memoryview(data))
        return bytes(data)

    def _leave(self, failed: bool) -> None:
        self.close()


class CheckpointStorage(Closing, ABC):
    """A directory that holds checkpoints; file names in it have no directory part.

    Attributes:
      path: its name, for messages and for other tools.
    """

    path: str

    @abstractmethod
    def create(self, name: str, n_bytes: int) -> FileSink:
        """Creates a new file.

        Args:
          name: its name, which no file has.
          n_bytes: its size, for messages.
        """

    @abstractmethod
    def open(self, name: str) -> FileSource:
        """Opens a file. Raises NotFoundError if it does not exist."""

    @abstractmethod
    def replace(self, name: str, data: bytes, temporary: str) -> None:
        """Replaces a whole file; a crash leaves either the old or the new content.

        Args:
          name: its name.
          data: its content.
          temporary: a name that it may have before, and that no file has.
        """

    @abstractmethod
    def remove(self, name: str) -> None:
        """Removes a file if it exists."""

    @abstractmethod
    def size(self, name: str) -> int | None:
        """Returns the size of a regular file; None if there is none."""

    @abstractmethod
    def names(self) -> list[str]:
        """Returns the names of all files."""

    @abstractmethod
    def sync(self) -> None:
        """Flushes the directory, so that created and removed names are on disk."""

    @abstractmethod
    def close(self) -> None:
        """Closes the directory."""

    def file(self, name: str) -> str:
        """Returns the path of a file, for messages."""
        return f"{self.path.rstrip('/')}/{name}"

    def _leave(self, failed: bool) -> None:
        self.close()

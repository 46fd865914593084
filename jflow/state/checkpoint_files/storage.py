"""Where checkpoints are: directories of this machine, and remote ones."""

from __future__ import annotations

from abc import ABC, abstractmethod

from jflow.base.handles import Closing


class FileSink(ABC):
    """A new file that is written from its beginning to its end."""

    @abstractmethod
    def write(self, data: memoryview) -> None:
        """Appends bytes.

        Raises:
          ResourceExhaustedError: if the disk or the quota is full.
        """

    @abstractmethod
    def finish(self) -> None:
        """Ends the file and waits until it is on the disk. Raises as `write`."""

    @abstractmethod
    def discard(self) -> None:
        """Removes the file."""


class FileSource(ABC):
    """A file that is read.

    Attributes:
      path: its name, for messages.
      n_bytes: its size when it was opened.
    """

    path: str
    n_bytes: int

    @abstractmethod
    def read_into(self, offset: int, data: memoryview) -> None:
        """Fills a buffer with the bytes at an offset.

        Raises:
          DataLossError: if the file ends before.
        """

    @abstractmethod
    def close(self) -> None:
        """Closes the file."""

    def read(self, offset: int, n_bytes: int) -> bytes:
        """Bytes at an offset, which the caller has compared with `n_bytes`. As `read_into`."""
        data = bytearray(n_bytes)
        self.read_into(offset, memoryview(data))
        return bytes(data)


class CheckpointStorage(Closing, ABC):
    """A directory that holds checkpoints; names of files in it have no directories.

    Attributes:
      path: its name, for messages and for other tools.
    """

    path: str

    @abstractmethod
    def create(self, name: str, n_bytes: int) -> FileSink:
        """Begins a new file.

        Args:
          name: its name, which no file has.
          n_bytes: its size, for messages.
        """

    @abstractmethod
    def open(self, name: str) -> FileSource:
        """Opens a file. Raises NotFoundError if it does not exist."""

    @abstractmethod
    def replace(self, name: str, data: bytes, temporary: str) -> None:
        """Writes a whole file in place of a former one; a crash leaves either of them.

        Args:
          name: its name.
          data: its content.
          temporary: a name that it may have before, and that no file has.
        """

    @abstractmethod
    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""

    @abstractmethod
    def size(self, name: str) -> int | None:
        """The size of a regular file; None if there is none."""

    @abstractmethod
    def names(self) -> list[str]:
        """The names of all files."""

    @abstractmethod
    def sync(self) -> None:
        """Waits until the names of files that were made or removed are on the disk."""

    @abstractmethod
    def close(self) -> None:
        """Releases the directory."""

    def file(self, name: str) -> str:
        """The path of a file, for messages."""
        return f"{self.path.rstrip('/')}/{name}"

    def _leave(self, failed: bool) -> None:
        self.close()

"""Checkpoint storage in a directory of this machine.

All files are opened relative to the open directory and are regular files: a link in place of one
is refused, so nothing outside of the directory is read, replaced or removed.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from jflow.base.failpoints import failpoint
from jflow.errors import DataLossError, FailedPreconditionError
from jflow.state.checkpoint_files.storage import CheckpointStorage, FileSink, FileSource
from jflow.state.records.failures import failure

_ANY = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
# O_NONBLOCK, because opening a FIFO without a writer would block the thread.
_READ = os.O_RDONLY | os.O_NONBLOCK | _ANY
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _ANY
_MODE = 0o666


class LocalStorage(CheckpointStorage):
    """Checkpoint storage in a directory of this machine.

    Args:
      descriptor: the open directory, which this closes.
      path: its path.
    """

    def __init__(self, descriptor: int, path: str) -> None:
        self.path = path
        self._descriptor = descriptor

    def create(self, name: str, n_bytes: int) -> FileSink:
        try:
            descriptor = os.open(name, _WRITE, _MODE, dir_fd=self._descriptor)
        except OSError as error:
            raise failure(error, self.file(name), "created") from error
        return _LocalSink(self, name, n_bytes, descriptor)

    def open(self, name: str) -> FileSource:
        try:
            descriptor = os.open(name, _READ, dir_fd=self._descriptor)
        except OSError as error:
            raise failure(error, self.file(name), "opened") from error
        return _LocalSource(descriptor, self.file(name))

    def replace(self, name: str, data: bytes, temporary: str) -> None:
        sink = self.create(temporary, len(data))
        try:
            sink.write(memoryview(data))
            sink.finish()
            failpoint("checkpoint.manifest_written")
            os.rename(temporary, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except OSError as error:
            sink.discard()
            raise failure(error, self.file(name), "replaced") from error
        except BaseException:
            sink.discard()
            raise
        failpoint("checkpoint.manifest_renamed")
        self.sync()

    def remove(self, name: str) -> None:
        try:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._descriptor)
        except OSError as error:
            raise failure(error, self.file(name), "removed") from error

    def size(self, name: str) -> int | None:
        try:
            status = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except OSError:
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def names(self) -> list[str]:
        return os.listdir(self._descriptor)

    def sync(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise failure(error, self.path, "written") from error

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class _LocalSink(FileSink):
    def __init__(self, storage: LocalStorage, name: str, n_bytes: int, descriptor: int) -> None:
        self._storage, self._name, self._n_wanted = storage, name, n_bytes
        self._n_written = 0
        self._descriptor = descriptor

    def write(self, data: memoryview) -> None:
        begin = self._n_written
        try:
            while data:
                n = os.write(self._descriptor, data)
                data, self._n_written = data[n:], self._n_written + n
            _write_back(self._descriptor, begin, self._n_written - begin)
        except OSError as error:
            raise self._failure(error) from error

    def finish(self) -> None:
        try:
            os.fsync(self._descriptor)
            self._close()
        except OSError as error:
            raise self._failure(error) from error

    def discard(self) -> None:
        with suppress(OSError):
            self._close()
        self._storage.remove(self._name)

    def _close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def _failure(self, error: OSError) -> Exception:
        done = f"written after {self._n_written} of {self._n_wanted} bytes"
        return failure(error, self._storage.file(self._name), done)


class _LocalSource(FileSource):
    def __init__(self, descriptor: int, path: str) -> None:
        self.path = path
        self._descriptor = descriptor
        status = os.fstat(descriptor)
        self.n_bytes = status.st_size
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise FailedPreconditionError(f"{path!r} is not a regular file")
        _read_ahead(descriptor)

    def read_into(self, offset: int, data: memoryview) -> None:
        end = offset + len(data)
        try:
            while data:
                n = os.preadv(self._descriptor, [data], end - len(data))
                if not n:
                    raise DataLossError(
                        f"{self.path!r} ends at offset {end - len(data)}; expected {end} bytes"
                    )
                data = data[n:]
        except OSError as error:
            raise failure(error, self.path, f"read at offset {offset}") from error

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


def _write_back(descriptor: int, offset: int, n_bytes: int) -> None:
    """Starts write-back to disk, while the checksum of the next block is computed."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, offset, n_bytes, os.POSIX_FADV_DONTNEED)


def _read_ahead(descriptor: int) -> None:
    """Asks the kernel to read ahead, while the checksum of a block is computed."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)

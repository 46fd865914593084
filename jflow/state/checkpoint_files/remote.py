"""Checkpoint storage in remote directories, through `etils.epath`: "gs://…", "s3://…".

Object stores show a file when it is complete, so the manifest is written in place. They have no
directories that could be flushed, and no links.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from jflow.base.failpoints import failpoint
from jflow.errors import DataLossError, OpError, UnimplementedError, UnknownError
from jflow.state.checkpoint_files.storage import CheckpointStorage, FileSink, FileSource
from jflow.state.records.failures import failure

SEPARATOR = "://"


class RemoteStorage(CheckpointStorage):
    """Checkpoint storage in a directory given by a URL.

    Args:
      url: the directory.

    Raises:
      UnimplementedError: if `etils.epath` does not open such URLs.
    """

    def __init__(self, url: str) -> None:
        self.path = url
        with _failures(url, "opened"):
            path: Any = importlib.import_module("etils.epath").Path
        try:
            self._directory: Any = path(url)
        except KeyError as error:
            raise UnimplementedError(
                f"etils.epath does not open {url!r}; it opens gs://, s3://, az:// and hf://"
            ) from error

    def create(self, name: str, n_bytes: int) -> FileSink:
        with _failures(self.file(name), "created"):
            return _RemoteSink(self, name, (self._directory / name).open("wb"))

    def open(self, name: str) -> FileSource:
        with _failures(self.file(name), "opened"):
            path = self._directory / name
            return _RemoteSource(path.open("rb"), path.stat().length, self.file(name))

    def replace(self, name: str, data: bytes, temporary: str) -> None:
        failpoint("checkpoint.manifest_written")
        with _failures(self.file(name), "written"):
            (self._directory / name).write_bytes(data)
        failpoint("checkpoint.manifest_renamed")

    def remove(self, name: str) -> None:
        with _failures(self.file(name), "removed"), suppress(FileNotFoundError):
            (self._directory / name).unlink()

    def size(self, name: str) -> int | None:
        with suppress(OSError), _failures(self.file(name), "found"):
            path = self._directory / name
            return int(path.stat().length) if path.exists() else None
        return None

    def names(self) -> list[str]:
        with _failures(self.path, "listed"):
            return [one.name for one in self._directory.iterdir()]

    def sync(self) -> None:
        """Does nothing: a file is durable once it is complete."""

    def close(self) -> None:
        """Does nothing."""


class _RemoteSink(FileSink):
    def __init__(self, storage: RemoteStorage, name: str, file: Any) -> None:
        self._storage, self._name, self._file = storage, name, file

    def write(self, data: memoryview) -> None:
        with _failures(self._storage.file(self._name), "written"):
            self._file.write(data)

    def finish(self) -> None:
        with _failures(self._storage.file(self._name), "written"):
            self._file.close()

    def discard(self) -> None:
        # What cannot be ended is not shown either.
        with suppress(Exception):
            self._file.close()
        with suppress(OpError):
            self._storage.remove(self._name)


class _RemoteSource(FileSource):
    def __init__(self, file: Any, n_bytes: int, path: str) -> None:
        self.path, self.n_bytes, self._file = path, n_bytes, file

    def read_into(self, offset: int, data: memoryview) -> None:
        with _failures(self.path, f"read at offset {offset}"):
            self._file.seek(offset)
            while data:
                n_read = self._file.read(len(data))
                if not n_read:
                    raise DataLossError(f"{self.path!r} ends before {len(data)} expected bytes")
                data[: len(n_read)] = n_read
                data = data[len(n_read) :]

    def close(self) -> None:
        self._file.close()


@contextmanager
def _failures(path: str, doing: str) -> Iterator[None]:
    """Converts the exceptions of a remote file system to errors of jflow."""
    try:
        yield
    except OpError:
        raise
    except ImportError as error:
        raise UnimplementedError(
            f"{path!r} cannot be {doing}: a package is not installed on this task ({error})"
        ) from error
    except OSError as error:
        raise failure(error, path, doing) from error
    except Exception as error:
        raise UnknownError(f"{path!r} cannot be {doing}: {error}") from error

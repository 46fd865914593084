"""Files of records as a source: one after the other, each as `jflow.records` reads it."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from jflow import errors
from jflow.data.engine import grain
from jflow.data.stream import State
from jflow.records import Records, Roots, open_records

READERS = {
    "text": "TextLineReader",
    "tfrecord": "TFRecordReader",
    "fixed": "FixedLengthRecordReader",
    "parquet": "ParquetReader",
}
KINDS = (*READERS, "array_record")

Path = str | os.PathLike[str]


def named(files: Path | Sequence[Path]) -> list[str]:
    """The files of a list in its order, or those that a pattern matches, sorted."""
    if not isinstance(files, str | os.PathLike):
        return [os.fspath(file) for file in files]
    pattern = os.fspath(files)
    found = [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern, recursive=True))
    if not found:
        raise errors.NotFoundError(
            f"no file matches {pattern!r} (working directory {os.getcwd()!r})"
        )
    return found


def check_kind(kind: str) -> None:
    """Refuses what is no kind of file."""
    if kind not in KINDS:
        raise errors.InvalidArgumentError(f"files are of a kind in {KINDS}, got {kind!r}")


def shown(kind: str, files: Sequence[str], options: Mapping[str, Any]) -> str:
    """Files as a saved position knows them: by their names, which must stay."""
    digest = hashlib.sha256("\0".join(files).encode(errors="surrogateescape")).hexdigest()[:12]
    extra = "".join(f", {name}={value!r}" for name, value in sorted(options.items()))
    return f"from_files({kind}, {len(files)} files, sha256 of their names {digest}{extra})"


class FileRecords(grain.DatasetIterator[Any]):
    """The records of files, as bytes; its position is a file and its reader's position."""

    def __init__(self, kind: str, files: Sequence[str], options: Mapping[str, Any]) -> None:
        super().__init__()
        self._kind = kind
        self._files = files
        self._options = options
        self._current = 0
        self._reader: Records | None = None

    def __next__(self) -> bytes:
        while self._current < len(self._files):
            if self._reader is None:
                self._reader = self._open(None)
            record = self._reader.read()
            if record is not None:
                return record[1]
            self._close_reader()
            self._current += 1
        raise StopIteration

    def _open(self, position: Any) -> Records:
        # A dataset runs in its user's own process, which may read what the user may.
        name = os.fsencode(self._files[self._current])
        return open_records(
            READERS[self._kind], name, self._options, Roots.anywhere(), position=position
        )

    def get_state(self) -> State:
        position = None if self._reader is None else self._reader.position
        return {"file": self._current, "position": position}

    def set_state(self, state: State) -> None:
        self._close_reader()
        self._current = state["file"]
        if state["position"] is not None:
            self._reader = self._open(state["position"])

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = None

    def close(self) -> None:
        self._close_reader()
        super().close()

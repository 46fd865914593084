"""Reads files in sequence as a source: records as bytes, or rows as blocks of arrays."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache
from typing import Any, Generic, Protocol, TypeVar

from jflow.data.engine import grain
from jflow.data.stream import State
from jflow.errors import InvalidArgumentError, NotFoundError
from jflow.state.records import (
    CsvBlocks,
    ParquetBlocks,
    Records,
    TFRecordOptions,
    compression_of,
    open_records,
)
from jflow.state.records.allowed_directories import AllowedDirectories

READERS = {
    "text": "TextLineReader",
    "tfrecord": "TFRecordReader",
    "fixed": "FixedLengthRecordReader",
    "parquet": "ParquetReader",
}
KINDS = (*READERS, "array_record")

Path = str | os.PathLike[str]


class Reader(Protocol):
    """Reads one file from front to back."""

    @property
    def position(self) -> Any:
        """The position of the next record, in JSON types."""

    def close(self) -> None:
        """Closes the file."""


Open = TypeVar("Open", bound=Reader)


def expand_pattern(files: Path | Sequence[Path]) -> list[str]:
    """Returns a list of files as it is, or the files that match a pattern, sorted."""
    if not isinstance(files, str | os.PathLike):
        return [os.fspath(file) for file in files]
    pattern = os.fspath(files)
    names = [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern, recursive=True))
    if not names:
        raise NotFoundError(f"no file matches {pattern!r} (working directory {os.getcwd()!r})")
    return names


def check_kind(kind: str) -> None:
    """Raises InvalidArgumentError if `kind` is not a supported kind of file."""
    if kind not in KINDS:
        raise InvalidArgumentError(
            f"expected one of {KINDS} as kind, got {kind!r}; "
            "for rows as dictionaries use Dataset.from_csv or Dataset.from_parquet"
        )


def describe_files(kind: str, files: Sequence[str], options: Mapping[str, Any]) -> str:
    """Describes files for saved positions, by a digest of their names."""
    digest = hashlib.sha256("\0".join(files).encode(errors="surrogateescape")).hexdigest()[:12]
    extra = "".join(f", {name}={value!r}" for name, value in sorted(options.items()))
    return f"from_files({kind}, {len(files)} files, sha256 of their names {digest}{extra})"


# A dataset runs in the user's own process and may read all files that the process may.
_ROOTS = AllowedDirectories.anywhere()


class Files(grain.DatasetIterator[Any], Generic[Open]):
    """Iterates the contents of files in sequence; saves the file number and its reader's position.

    Args:
      files: names of the files.
      start: opens a file at a position, or at its start if that is None.
      read: returns the next element of an open file, None at its end.
    """

    def __init__(
        self,
        files: Sequence[str],
        start: Callable[[bytes, Any], Open],
        read: Callable[[Open], Any],
    ) -> None:
        super().__init__()
        self._files = files
        self._start = start
        self._read = read
        self._current = 0
        self._reader: Open | None = None

    def __next__(self) -> Any:
        while self._current < len(self._files):
            if self._reader is None:
                self._reader = self._open(None)
            element = self._read(self._reader)
            if element is not None:
                return element
            self._close_reader()
            self._current += 1
        raise StopIteration

    def _open(self, position: Any) -> Open:
        return self._start(os.fsencode(self._files[self._current]), position)

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


def records_of(kind: str, files: Sequence[str], options: Mapping[str, Any]) -> Files[Records]:
    """Returns an iterator of the files' records, as bytes."""

    def start(name: bytes, position: Any) -> Records:
        return open_records(READERS[kind], name, options, _ROOTS, position=position)

    return Files(files, start, _next_record)


def _next_record(reader: Records) -> bytes | None:
    record = reader.read()
    return None if record is None else record[1]


def tf_record_iterator(
    path: str | os.PathLike[str], options: TFRecordOptions | str | None = None
) -> Iterator[bytes]:
    """Yields the records of a TFRecord file.

    Args:
      path: path of the file.
      options: its compression.

    Raises:
      NotFoundError: if there is no such file.
      DataLossError: if it is damaged, after the records before.
    """
    compression = {"compression": compression_of(options)}
    with closing(records_of("tfrecord", [os.fspath(path)], compression)) as records:
        yield from records


class Blocks(Reader, Protocol):
    """Reads the rows of one file in blocks."""

    columns: list[str]
    """The names of the columns that are read."""

    def read(self) -> dict[str, Any] | None:
        """Returns the next block of rows, as arrays by column name; None at the end."""


BLOCKS: Mapping[str, Callable[..., Blocks]] = {"csv": CsvBlocks, "parquet": ParquetBlocks}


def blocks_of(kind: str, files: Sequence[str], options: Mapping[str, Any]) -> Files[Blocks]:
    """Returns an iterator of blocks of rows; all files must have the columns of the first."""

    @cache
    def columns_of_first() -> list[str]:
        first = BLOCKS[kind](os.fsencode(files[0]), _ROOTS, **options)
        first.close()
        return first.columns

    def start(name: bytes, position: Any) -> Blocks:
        opened = BLOCKS[kind](name, _ROOTS, position, **options)
        if name != os.fsencode(files[0]) and {*opened.columns} != {*columns_of_first()}:
            opened.close()
            raise InvalidArgumentError(
                f"{os.fsdecode(name)} has the columns {opened.columns}, but the first file, "
                f"{files[0]}, has {columns_of_first()}; select common columns with columns="
            )
        return opened

    return Files(files, start, _next_block)


def _next_block(reader: Blocks) -> dict[str, Any] | None:
    return reader.read()


def rows_of(block: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the rows of a block as dictionaries by column name."""
    return [dict(zip(block, row, strict=True)) for row in zip(*block.values(), strict=True)]

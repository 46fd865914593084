"""The reader of records of a fixed length."""

from __future__ import annotations

from typing import Any

from jflow.errors import InvalidArgumentError
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.records.reader import Records, count_of, text_of
from jflow.state.records.stream import ByteStream


class FixedLengthRecords(Records):
    """Reads fixed-length records between a header and a footer; keys are `file:index`.

    If the hop is `record_bytes`, the length between header and footer must be a multiple of it.
    Otherwise bytes at the end that are too few for a record are ignored.

    Args:
      name: name of the file.
      roots: the directories that may be read.
      position: index of the first record to read, from 0.
      record_bytes: length of a record in bytes.
      header_bytes: number of bytes before the first record.
      footer_bytes: number of bytes after the last record.
      hop_bytes: distance in bytes between the starts of records; 0 for `record_bytes`.
      encoding: "", or "ZLIB" for a file that is compressed as a whole.

    Raises:
      InvalidArgumentError: if the length of the file does not fit. The length of a compressed file
        is known only at its end, where the error is raised.
    """

    def __init__(
        self,
        name: bytes,
        roots: AllowedDirectories,
        position: Any = None,
        *,
        record_bytes: int,
        header_bytes: int = 0,
        footer_bytes: int = 0,
        hop_bytes: int = 0,
        encoding: str = "",
    ) -> None:
        self._name = name
        self._length = count_of(record_bytes, name, "record_bytes", 1)
        self._header = count_of(header_bytes, name, "header_bytes")
        self._footer = count_of(footer_bytes, name, "footer_bytes")
        self._hop = count_of(hop_bytes, name, "hop_bytes") or self._length
        self._index = count_of(0 if position is None else position, name, "position")
        if encoding not in ("", "ZLIB"):
            raise InvalidArgumentError(
                f"{text_of(name)}: expected '' or 'ZLIB' as encoding, got {encoding!r}"
            )
        self._stream = ByteStream(name, roots, encoding)
        if (size := self._stream.left()) is not None:
            try:
                self._check(size)
            except InvalidArgumentError:
                self.close()
                raise

    @property
    def position(self) -> int:
        """The index of the next record."""
        return self._index

    def close(self) -> None:
        """Closes the file."""
        self._stream.close()

    def _append_to(self, keys: list[bytes], values: list[bytes], n: int) -> None:
        stream, length = self._stream, self._length
        n_needed = length + self._footer
        while len(values) < n:
            start = self._header + self._index * self._hop
            if stream.offset != start and not stream.advance(start):
                return self._check(stream.offset)
            if (
                len(stream.data) - stream.at < n_needed
                and (n_left := stream.fill(n_needed)) < n_needed
            ):
                return self._check(start + n_left)
            values.append(stream.data[stream.at : stream.at + length])
            keys.append(b"%b:%d" % (self._name, self._index))
            self._index += 1
        return None

    def _check(self, size: int) -> None:
        """Raises InvalidArgumentError if a file of `size` bytes does not fit the lengths."""
        body = size - self._header - self._footer
        if body < 0 or (self._hop == self._length and body % self._length):
            raise InvalidArgumentError(
                f"{text_of(self._name)} has {size} bytes; without a header of {self._header} and a "
                f"footer of {self._footer} that is not a multiple of record_bytes={self._length}"
            )

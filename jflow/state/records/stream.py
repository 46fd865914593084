"""Sequential, buffered reading of a file with optional decompression.

Readers access the current block directly, and call the stream only at its end.
"""

from __future__ import annotations

import os
import zlib
from typing import BinaryIO

from jflow.errors import DataLossError, InvalidArgumentError, UnknownError
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.records.reader import text_of

_BLOCK_BYTES = 256 * 1024
WINDOW_BITS = {"GZIP": 31, "ZLIB": 15}
"""The argument `wbits` of zlib for each compression format."""

COMPRESSIONS = ("", *WINDOW_BITS)


class ByteStream:
    """A buffered stream of the bytes of a file.

    Args:
      name: name of the file.
      roots: the directories that may be read.
      compression: "", "GZIP" or "ZLIB".
      start: offset to start at, in decompressed bytes.

    Attributes:
      data: the buffer.
      at: index in `data` of the next byte, which the reader advances.

    Raises:
      DataLossError: if the file ends before `start`.
      InvalidArgumentError: if there is no such compression.
      OpError: as `AllowedDirectories.open`.
    """

    def __init__(
        self, name: bytes, roots: AllowedDirectories, compression: str = "", start: int = 0
    ) -> None:
        if compression not in COMPRESSIONS:
            raise InvalidArgumentError(
                f"expected one of {COMPRESSIONS} as compression, got {compression!r}"
            )
        self.data, self.at = b"", 0
        self._name, self._start = text_of(name), 0
        file = roots.open(name)
        self._source = _Inflated(file, compression) if compression else _Plain(file)
        if start and not self.advance(start):
            self.close()
            raise DataLossError(
                f"{self._name} has only {self.offset} bytes; cannot continue at offset {start}"
            )

    @property
    def offset(self) -> int:
        """The offset of the next byte, in decompressed bytes."""
        return self._start + self.at

    def fill(self, n: int) -> int:
        """Fills the buffer to at least `n` bytes, or fewer at the end of the file.

        Returns:
          The number of bytes in the buffer.

        Raises:
          DataLossError: if the compressed file is damaged.
          UnknownError: if the file cannot be read.
        """
        have = len(self.data) - self.at
        if have >= n:
            return have
        parts = [self.data[self.at :]]
        while have < n and (part := self._read(max(n - have, _BLOCK_BYTES))):
            parts.append(part)
            have += len(part)
        if len(parts) > 1:
            self.data, self._start, self.at = b"".join(parts), self.offset, 0
        return have

    def advance(self, offset: int) -> bool:
        """Skips forward to an offset; returns False if the file ends before it."""
        beyond = offset - self._start - len(self.data)
        if beyond > 0:
            self._start += len(self.data) + self._source.skip(beyond)
            self.data, self.at = b"", 0
        while self.offset < offset and (have := self.fill(1)):
            self.at += min(have, offset - self.offset)
        return self.offset == offset

    def left(self) -> int | None:
        """Returns the number of bytes left; None for a compressed file."""
        rest = self._source.left()
        return None if rest is None else rest + len(self.data) - self.at

    def close(self) -> None:
        """Closes the file."""
        self._source.file.close()

    def _read(self, n: int) -> bytes:
        try:
            return self._source.read(n)
        except OSError as error:
            raise UnknownError(f"{self._name} cannot be read: {error.strerror}") from error
        except (zlib.error, EOFError) as error:
            raise DataLossError(f"{self._name} is damaged compressed data: {error}") from error


class _Plain:
    """An uncompressed file, up to its length when it was opened."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self._left = os.fstat(file.fileno()).st_size

    def read(self, n: int) -> bytes:
        data = self.file.read(min(n, self._left))
        # A file that was truncated in the meantime has ended.
        self._left = self._left - len(data) if data else 0
        return data

    def left(self) -> int | None:
        return self._left

    def skip(self, n: int) -> int:
        """Skips up to `n` bytes and returns their number."""
        skipped = min(n, self._left)
        self._left -= skipped
        self.file.seek(skipped, os.SEEK_CUR)
        return skipped


class _Inflated:
    """A compressed file of one or more gzip or zlib streams."""

    def __init__(self, file: BinaryIO, compression: str) -> None:
        self.file = file
        self._bits = WINDOW_BITS[compression]
        self._inflate = zlib.decompressobj(self._bits)
        self._compressed = b""
        self._is_inside = False

    def read(self, _: int) -> bytes:
        """Returns up to one block of decompressed bytes; b"" at the end."""
        while True:
            compressed = self._compressed or self.file.read(_BLOCK_BYTES)
            if not compressed and not self._is_inside:
                return b""
            data = self._inflate.decompress(compressed, _BLOCK_BYTES)
            self._compressed, self._is_inside = self._inflate.unconsumed_tail, True
            if self._inflate.eof:
                self._compressed, self._is_inside = self._inflate.unused_data, False
                self._inflate = zlib.decompressobj(self._bits)
            elif not data and not compressed:
                raise EOFError("it is truncated")
            if data:
                return data

    def left(self) -> int | None:
        return None

    def skip(self, _: int) -> int:
        """Returns 0: compressed bytes cannot be skipped."""
        return 0

"""The reader of lines of text."""

from __future__ import annotations

from typing import Any

from jflow.errors import InvalidArgumentError, OpError, ResourceExhaustedError
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.records.reader import Records, count_of, text_of
from jflow.state.records.stream import ByteStream

_FIRST_FILL_BYTES = 4096


class TextLineRecords(Records):
    """Reads lines, without "\\n" or "\\r\\n" at their ends; keys are `file:line`, from 1.

    The last line need not end with a newline, and empty lines are records.

    Args:
      name: name of the file.
      roots: the directories that may be read.
      position: a former `position`, [offset in bytes, lines before]; None for the start.
      skip_header_lines: number of lines to skip at the start, which keys still count.
      max_line_bytes: maximum length of a line in bytes; this and a block are in memory at most.
    """

    def __init__(
        self,
        name: bytes,
        roots: AllowedDirectories,
        position: Any = None,
        *,
        skip_header_lines: int = 0,
        max_line_bytes: int = 16 << 20,
    ) -> None:
        self._name = name
        self._max = count_of(max_line_bytes, name, "max_line_bytes", 1)
        header = count_of(skip_header_lines, name, "skip_header_lines")
        start, self._lines = (0, 0) if position is None else _parse_position(position, name)
        self._stream = ByteStream(name, roots, start=start)
        if position is None and header:
            try:
                self._append_to([], [], header)
            except OpError:
                self.close()
                raise

    @property
    def position(self) -> list[int]:
        """The offset of the next line in bytes, and the number of lines before it."""
        return [self._stream.offset, self._lines]

    def close(self) -> None:
        """Closes the file."""
        self._stream.close()

    def _append_to(self, keys: list[bytes], values: list[bytes], n: int) -> None:
        stream = self._stream
        while len(values) < n:
            end = stream.data.find(b"\n", stream.at)
            if end < 0:
                end = self._look_further()
            if end < 0:
                return
            line = stream.data[stream.at : end]
            if line.endswith(b"\r"):
                line = line[:-1]
            if len(line) > self._max:
                raise self._too_long()
            stream.at = min(end + 1, len(stream.data))
            self._lines += 1
            keys.append(b"%b:%d" % (self._name, self._lines))
            values.append(line)

    def _look_further(self) -> int:
        """Finds the end of a line that is not fully buffered; returns -1 at the end of the file."""
        stream, searched = self._stream, len(self._stream.data) - self._stream.at
        while searched <= self._max + 1:
            have = stream.fill(max(2 * searched, _FIRST_FILL_BYTES))
            end = stream.data.find(b"\n", stream.at + searched)
            if end >= 0:
                return end
            if have == searched:
                return len(stream.data) if have else -1
            searched = have
        raise self._too_long()

    def _too_long(self) -> ResourceExhaustedError:
        return ResourceExhaustedError(
            f"line {self._lines + 1} of {text_of(self._name)} has more than {self._max} bytes; "
            "if it is a text file, pass a larger max_line_bytes"
        )


def _parse_position(position: Any, name: bytes) -> tuple[int, int]:
    if not isinstance(position, list | tuple) or len(position) != 2:
        raise InvalidArgumentError(
            f"{text_of(name)}: expected [offset, lines] as position, got {position!r}"
        )
    offset, lines = position
    return count_of(offset, name, "offset"), count_of(lines, name, "number of lines")

"""Readers of work items that are one record each."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from jflow.errors import InvalidArgumentError, ResourceExhaustedError
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.records.reader import MAX_RECORD_BYTES, Records, count_of, text_of
from jflow.state.records.stream import ByteStream


class _OneRecord(Records):
    """Base of readers of one record per work item; the key is the work item.

    Args:
      name: the work item.
      position: number of records that were read, 0 or 1.
    """

    def __init__(self, name: bytes, position: Any) -> None:
        self._name = name
        self._index = count_of(0 if position is None else position, name, "position")
        if self._index > 1:
            raise InvalidArgumentError(
                f"{text_of(name)} is one record: expected 0 or 1 as position, got {position}"
            )

    @property
    def position(self) -> int:
        """The number of records that were read, 0 or 1."""
        return self._index

    @abstractmethod
    def _value(self) -> bytes: ...

    def _append_to(self, keys: list[bytes], values: list[bytes], n: int) -> None:
        if self._index == 0 and n > 0:
            values.append(self._value())
            keys.append(self._name)
            self._index = 1


class IdentityRecords(_OneRecord):
    """Returns the work item itself as the record, without opening a file."""

    def __init__(self, name: bytes, roots: AllowedDirectories, position: Any = None) -> None:
        super().__init__(name, position)

    def close(self) -> None:
        """Does nothing."""

    def _value(self) -> bytes:
        return self._name


class WholeFileRecords(_OneRecord):
    """Reads a file as one record.

    Args:
      name: name of the file.
      roots: the directories that may be read.
      position: number of records that were read, 0 or 1.
      max_record_bytes: maximum size of the file in bytes.
    """

    def __init__(
        self,
        name: bytes,
        roots: AllowedDirectories,
        position: Any = None,
        *,
        max_record_bytes: int = MAX_RECORD_BYTES,
    ) -> None:
        super().__init__(name, position)
        self._max = count_of(max_record_bytes, name, "max_record_bytes", 1)
        self._stream = ByteStream(name, roots)

    def close(self) -> None:
        """Closes the file."""
        self._stream.close()

    def _value(self) -> bytes:
        stream = self._stream
        size = stream.left() or 0
        if size > self._max:
            raise ResourceExhaustedError(
                f"{text_of(self._name)} has {size} bytes, more than max_record_bytes={self._max}"
            )
        stream.fill(size)
        return stream.data

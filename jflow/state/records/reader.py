"""Base classes of readers of the records of a work item, usually a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from jflow.errors import DataLossError, InvalidArgumentError, OpError

MAX_RECORD_BYTES = 1 << 30
"""The default maximum size of a record, in bytes."""


class Records(ABC):
    """Reads the records of a work item in order.

    The records before one that cannot be read are returned first; the next call and all later ones
    raise the error.
    """

    @property
    @abstractmethod
    def position(self) -> Any:
        """The position of the next record, as JSON types, to be passed to `open_records`."""

    @abstractmethod
    def close(self) -> None:
        """Closes the file."""

    @abstractmethod
    def _append_to(self, keys: list[bytes], values: list[bytes], n: int) -> None:
        """Appends complete records until there are `n`, or the end is reached."""

    def read(self) -> tuple[bytes, bytes] | None:
        """Returns the key and value of the next record; None at the end.

        Raises:
          DataLossError: if the file is damaged there.
          ResourceExhaustedError: if the record is longer than the options allow.
        """
        keys: list[bytes] = []
        values: list[bytes] = []
        self._append_to(keys, values, 1)
        return (keys[0], values[0]) if keys else None

    def read_up_to(self, n: int) -> tuple[list[bytes], list[bytes]]:
        """Returns the keys and values of up to `n` next records.

        Raises:
          InvalidArgumentError: if `n` is not positive.
          OpError: as `read`, if the first of them cannot be read.
        """
        if n <= 0:
            raise InvalidArgumentError(f"expected a positive number of records, got {n}")
        keys: list[bytes] = []
        values: list[bytes] = []
        try:
            self._append_to(keys, values, n)
        except OpError:
            if not keys:
                raise
        return keys, values


def text_of(name: bytes) -> str:
    """Returns the name of a file for messages, even if its bytes are not UTF-8."""
    return name.decode(errors="backslashreplace")


def count_of(value: Any, name: bytes, what: str, least: int = 0) -> int:
    """Returns the value of an option after checking that it is a large enough integer.

    Raises:
      InvalidArgumentError: if it is not an integer or less than `least`.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    raise InvalidArgumentError(
        f"{text_of(name)}: expected an integer of {least} or more as {what}, got {value!r}"
    )


class BlockRecords(Records):
    """Base of readers that fetch records in blocks; keys are `file:index`, from 0.

    Args:
      name: name of the file.
      position: index of the first record to read.
      count: number of records in the file.

    Raises:
      DataLossError: if the position is beyond the end.
    """

    def __init__(self, name: bytes, position: Any, count: int) -> None:
        self._name, self._count = name, count
        self._index = start = count_of(0 if position is None else position, name, "position")
        if start > count:
            raise DataLossError(
                f"{text_of(name)} has only {count} records; cannot continue at record {start}"
            )
        self._block: Sequence[bytes] = ()
        self._block_start = start

    @property
    def position(self) -> int:
        """The index of the next record."""
        return self._index

    @abstractmethod
    def _fetch(self, index: int) -> Sequence[bytes]:
        """Returns at least one record, beginning at an index."""

    def _append_to(self, keys: list[bytes], values: list[bytes], n: int) -> None:
        while len(values) < n and self._index < self._count:
            if self._index >= self._block_start + len(self._block):
                self._block_start, self._block = self._index, self._fetch(self._index)
            first = self._index - self._block_start
            block = self._block[first : first + n - len(values)]
            keys.extend(b"%b:%d" % (self._name, self._index + i) for i in range(len(block)))
            values.extend(block)
            self._index += len(block)

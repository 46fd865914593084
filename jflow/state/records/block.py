"""The base of readers whose library returns many records at once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from jflow.errors import DataLossError
from jflow.state.records.reader import Records, count_of, text_of


class BlockRecords(Records):
    """Reads records in blocks; keys are `file:index`, from 0.

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
        """Returns records from an index on, at least one."""

    def _append_to(self, keys: list[bytes], values: list[bytes], n: int) -> None:
        while len(values) < n and self._index < self._count:
            if self._index >= self._block_start + len(self._block):
                self._block_start, self._block = self._index, self._fetch(self._index)
            first = self._index - self._block_start
            found = self._block[first : first + n - len(values)]
            keys.extend(b"%b:%d" % (self._name, self._index + i) for i in range(len(found)))
            values.extend(found)
            self._index += len(found)

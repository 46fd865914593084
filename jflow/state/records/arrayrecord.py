"""ArrayRecord files, read with the package array-record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jflow.errors import DataLossError
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.records.extras import needed
from jflow.state.records.reader import BlockRecords, count_of, text_of


class ArrayRecords(BlockRecords):
    """Reads the records of an ArrayRecord file; keys are `file:index`, from 0.

    Args:
      name: name of the file.
      roots: the directories that may be read.
      position: index of the first record to read.
      block_records: number of records that are fetched at once.
    """

    def __init__(
        self,
        name: bytes,
        roots: AllowedDirectories,
        position: Any = None,
        *,
        block_records: int = 256,
    ) -> None:
        self._length = count_of(block_records, name, "block_records", 1)
        module = needed("array_record.python.array_record_module", "data", "ArrayRecordReader")
        with roots.open(name) as file:
            # The library opens files by path. This path is the file whose access was checked.
            self._reader = module.ArrayRecordReader(f"/dev/fd/{file.fileno()}")
        try:
            if not self._reader.ok():
                # `close` raises the reason.
                self._reader.close()
                raise RuntimeError("it is not an ArrayRecord file")
            super().__init__(name, position, self._reader.num_records())
        except RuntimeError as error:
            raise DataLossError(f"{text_of(name)} cannot be read: {error}") from error

    def close(self) -> None:
        """Closes the file."""
        if self._reader.is_open() and self._reader.ok():
            self._reader.close()

    def _fetch(self, index: int) -> Sequence[bytes]:
        end = min(index + self._length, self._count)
        try:
            block: list[bytes] = self._reader.read(index, end)
        except (RuntimeError, IndexError) as error:
            raise DataLossError(
                f"records {index} to {end - 1} of {text_of(self._name)} are damaged: {error}"
            ) from error
        if len(block) != end - index:
            raise DataLossError(
                f"records {index} to {end - 1} of {text_of(self._name)} are damaged: only "
                f"{len(block)} could be read"
            )
        return block

"""The reader of Parquet files as Examples, with the package pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jflow.errors import InvalidArgumentError
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.records.arrow import ArrowBatches
from jflow.state.records.example import BYTES, FLOATS, INTEGERS, encode_lists
from jflow.state.records.reader import BlockRecords, count_of, text_of


class ParquetRecords(BlockRecords):
    """Reads rows as serialized tf.train.Examples, for `parse_example`; keys are `file:row`, from 0.

    An Example has a feature for each column whose value is not null. Integers and booleans become
    int64 lists, floats float lists (of 32 bits, because Examples have no others), text and binary
    values bytes lists; a list of these becomes a list of its length.

    Args:
      name: name of the file.
      roots: the directories that may be read.
      position: index of the first row to read.
      columns: names of the columns to read; None for all.
      block_records: number of rows that are decoded at once.

    Raises:
      DataLossError: if the file is damaged.
      InvalidArgumentError: if a column does not exist, or has a type that Examples do not support.
    """

    def __init__(
        self,
        name: bytes,
        roots: AllowedDirectories,
        position: Any = None,
        *,
        columns: Sequence[str] | None = None,
        block_records: int = 1024,
    ) -> None:
        length = count_of(block_records, name, "block_records", 1)
        self._batches = ArrowBatches(name, roots, columns, length, "ParquetReader")
        try:
            super().__init__(name, position, self._batches.n_rows)
            self._kinds = self._kinds_of()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the file."""
        self._batches.close()

    def _fetch(self, index: int) -> Sequence[bytes]:
        return self._encoded(self._batches.at(index))

    def _kinds_of(self) -> dict[str, int]:
        """The kind of list for each column."""
        kinds = {}
        for column, dtype in self._batches.types.items():
            kind = self._kind_of(dtype)
            if kind is None:
                raise InvalidArgumentError(
                    f"column {column!r} of {text_of(self._name)} has type {dtype}, which Examples "
                    "do not support; select other columns with columns="
                )
            kinds[column] = kind
        return kinds

    def _kind_of(self, dtype: Any) -> int | None:
        types = self._batches.arrow.types
        if types.is_list(dtype) or types.is_large_list(dtype) or types.is_fixed_size_list(dtype):
            dtype = dtype.value_type
        if types.is_integer(dtype) or types.is_boolean(dtype):
            return INTEGERS
        if types.is_floating(dtype):
            return FLOATS
        is_text = types.is_string(dtype) or types.is_large_string(dtype)
        is_binary = types.is_binary(dtype) or types.is_large_binary(dtype)
        return BYTES if is_text or is_binary or types.is_fixed_size_binary(dtype) else None

    def _encoded(self, batch: Any) -> Sequence[bytes]:
        kinds = list(self._kinds.items())
        columns = [batch.column(name).to_pylist() for name, _ in kinds]
        return [
            encode_lists(
                (name, kind, value if isinstance(value, list) else [value])
                for (name, kind), value in zip(kinds, row, strict=True)
                if value is not None
            )
            for row in zip(*columns, strict=True)
        ]

"""Parquet files, by the package pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jflow.errors import InvalidArgumentError
from jflow.records.allowed_directories import AllowedDirectories
from jflow.records.arrow import ArrowBatches
from jflow.records.block import BlockRecords
from jflow.records.example import BYTES, FLOATS, INTEGERS, encode_lists
from jflow.records.reader import count_of, text_of


class ParquetRecords(BlockRecords):
    """Each row is a record; the key is `file:row`, from 0.

    The record is the row as a serialized tf.train.Example with a feature for each column, so
    `parse_example` reads it. Integers and booleans are int64 lists, floats are float lists (of 32
    bits, as Examples have no others), text and binary columns are bytes lists, and lists of these
    are lists of that length. A feature is left out where the value is null.

    Args:
      name: the file.
      roots: opens it.
      position: the first row to read.
      columns: names of the columns to read, where it is not all.
      block_records: how many rows are decoded at once.

    Raises:
      DataLossError: if the file is damaged.
      InvalidArgumentError: if there is no such column, or one of another type.
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
        """The kind of list that each column becomes."""
        kinds = {}
        for column, dtype in self._batches.types.items():
            kind = self._kind_of(dtype)
            if kind is None:
                raise InvalidArgumentError(
                    f"column {column!r} of {text_of(self._name)} is of {dtype}, "
                    "which an Example cannot hold; choose others by `columns`"
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

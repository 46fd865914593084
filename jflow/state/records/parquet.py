"""Readers of Parquet files as Examples and as arrays, with the package pyarrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from jflow.base.values import Array
from jflow.errors import InvalidArgumentError
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.records.arrow import ArrowBatches
from jflow.state.records.example import BYTES, FLOATS, INTEGERS, encode_lists
from jflow.state.records.reader import BlockRecords, count_of, text_of

_BLOCK_ROWS = 256


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
            types = self._batches.types
            self._kinds = {column: self._kind_of(column, dtype) for column, dtype in types.items()}
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the file."""
        self._batches.close()

    def _fetch(self, index: int) -> Sequence[bytes]:
        return self._encode_rows(self._batches.at(index))

    def _kind_of(self, column: str, dtype: Any) -> int:
        """Returns the kind of list for a column. Raises InvalidArgumentError if there is none."""
        types = self._batches.arrow.types
        value = dtype.value_type if _is_list(types, dtype) else dtype
        if types.is_integer(value) or types.is_boolean(value):
            return INTEGERS
        if types.is_floating(value):
            return FLOATS
        is_text = types.is_string(value) or types.is_large_string(value)
        is_binary = types.is_binary(value) or types.is_large_binary(value)
        if is_text or is_binary or types.is_fixed_size_binary(value):
            return BYTES
        raise InvalidArgumentError(
            f"column {column!r} of {text_of(self._name)} has type {dtype}, which Examples do not "
            "support; select other columns with columns="
        )

    def _encode_rows(self, batch: Any) -> Sequence[bytes]:
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


class ParquetBlocks:
    """Reads the rows of a Parquet file in blocks of arrays by column name.

    Numbers, booleans, dates and timestamps keep their dtypes; text and binary values are `bytes`.
    A column of lists becomes an array of arrays, or an array with one more dimension if the file
    declares a length of its lists.

    Args:
      name: name of the file.
      roots: the directories that may be read.
      position: index of the first row to read.
      columns: names of the columns to read; None for all.
      record_defaults: by column name, the value to use for null; null in other columns is an error.

    Attributes:
      columns: names of the columns that are read.

    Raises:
      DataLossError: if the file is damaged.
      InvalidArgumentError: if a column does not exist, or has a type without a NumPy dtype.
      UnimplementedError: if pyarrow is not installed.
    """

    def __init__(
        self,
        name: bytes,
        roots: AllowedDirectories,
        position: Any = None,
        *,
        columns: Sequence[str] | None = None,
        record_defaults: Mapping[str, Any],
    ) -> None:
        self._name, self._defaults = name, record_defaults
        self._row = count_of(0 if position is None else position, name, "position")
        self._batches = ArrowBatches(name, roots, columns, _BLOCK_ROWS, "Dataset.from_parquet")
        self.columns = [*self._batches.types]
        try:
            for column, dtype in self._batches.types.items():
                if not self._can_hold(dtype):
                    raise InvalidArgumentError(
                        f"column {column!r} of {text_of(name)} has type {dtype}, which has no "
                        "NumPy dtype; select other columns with columns="
                    )
            for column in record_defaults:
                if column not in self.columns:
                    raise InvalidArgumentError(
                        f"{text_of(name)} has no column {column!r} among those that are read: "
                        f"{self.columns}"
                    )
        except BaseException:
            self.close()
            raise

    @property
    def position(self) -> int:
        """The index of the next row."""
        return self._row

    def close(self) -> None:
        """Closes the file."""
        self._batches.close()

    def read(self) -> dict[str, Array] | None:
        """Returns the columns of the next rows, at least one; None at the end.

        Raises:
          DataLossError: if they cannot be read.
          InvalidArgumentError: if a value is null; the message names the file, row and column.
        """
        if self._row >= self._batches.n_rows:
            return None
        batch = self._batches.at(self._row)
        count = self._rows_without_null(batch)
        if count < len(batch):
            batch = batch.slice(0, count)
        block = {
            column: self._array(column, values)
            for column, values in zip(self.columns, batch.columns, strict=True)
        }
        self._row += len(batch)
        return block

    def _rows_without_null(self, batch: Any) -> int:
        """Returns the number of rows, at least one, before the first null without a default."""
        count = len(batch)
        for column, values in zip(self.columns, batch.columns, strict=True):
            if column in self._defaults or not values.null_count:
                continue
            first = int(np.asarray(values.is_null()).argmax())
            if first == 0:
                raise InvalidArgumentError(
                    f"Column {column!r} in row {self._row} of {text_of(self._name)} is null; "
                    f"pass the value to use for null as record_defaults={{{column!r}: ...}}"
                )
            count = min(count, first)
        return count

    def _array(self, column: str, values: Any) -> Array:
        if values.null_count:
            default, arrow = self._defaults[column], self._batches.arrow
            try:
                values = values.fill_null(arrow.scalar(default, values.type))
            except (arrow.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise InvalidArgumentError(
                    f"record_defaults of column {column!r}: expected a value of type "
                    f"{values.type}, as in {text_of(self._name)}, got {default!r:.80}: {error}"
                ) from error
        return self._numpy(column, values)

    def _numpy(self, column: str, values: Any) -> Array:
        arrow = self._batches.arrow
        types, dtype = arrow.types, values.type
        if types.is_dictionary(dtype):
            return self._numpy(column, values.dictionary_decode())
        if _is_list(types, dtype):
            return self._lists(column, values)
        if types.is_string(dtype):
            values = values.cast(arrow.binary())
        elif types.is_large_string(dtype):
            values = values.cast(arrow.large_binary())
        array: Array = values.to_numpy(zero_copy_only=False)
        return array

    def _lists(self, column: str, values: Any) -> Array:
        flat = values.flatten()
        if flat.null_count:
            raise InvalidArgumentError(
                f"a list in column {column!r} of {text_of(self._name)} contains null, in rows "
                f"{self._row} to {self._row + len(values) - 1}; select other columns"
            )
        inner = self._numpy(column, flat)
        if self._batches.arrow.types.is_fixed_size_list(values.type):
            return inner.reshape(len(values), values.type.list_size)
        ends = np.cumsum(np.asarray(values.value_lengths()))
        result = np.empty(len(values), object)
        for row, (start, end) in enumerate(pairwise([0, *ends.tolist()])):
            result[row] = inner[start:end]
        return result

    def _can_hold(self, dtype: Any) -> bool:
        types = self._batches.arrow.types
        if _is_list(types, dtype) or types.is_dictionary(dtype):
            dtype = dtype.value_type
        return any(
            is_such(dtype)
            for is_such in (
                *(types.is_boolean, types.is_integer, types.is_floating),
                *(types.is_date, types.is_timestamp, types.is_duration),
                *(types.is_string, types.is_large_string),
                *(types.is_binary, types.is_large_binary, types.is_fixed_size_binary),
            )
        )


def _is_list(types: Any, dtype: Any) -> bool:
    return bool(
        types.is_list(dtype) or types.is_large_list(dtype) or types.is_fixed_size_list(dtype)
    )

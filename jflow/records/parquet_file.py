"""Parquet files become arrays, a block of rows at a time, by the package pyarrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from jflow.errors import InvalidArgumentError
from jflow.records.allowed_directories import AllowedDirectories
from jflow.records.arrow import ArrowBatches
from jflow.records.reader import count_of, text_of
from jflow.values import Array


class ParquetBlocks:
    """The rows of a Parquet file, in blocks of arrays by the names of the columns.

    Numbers, booleans, dates and timestamps keep their dtypes; text and binary values are `bytes`.
    A column of lists of these is an array of arrays, or of one more dimension where all lists have
    the length that the file declares.

    Args:
      name: the file.
      roots: opens it.
      position: the first row to read.
      columns: names of the columns to read, where it is not all.
      record_defaults: by the names of columns, what stands for null; a null in another column is an
        error.
      block_rows: how many rows a block has at most.

    Attributes:
      columns: names of the columns that are read.

    Raises:
      DataLossError: if the file is damaged.
      InvalidArgumentError: if there is no such column, or one of another type.
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
        block_rows: int = 256,
    ) -> None:
        self._name, self._defaults = name, record_defaults
        length = count_of(block_rows, name, "block_rows", 1)
        self._row = count_of(0 if position is None else position, name, "position")
        self._batches = ArrowBatches(name, roots, columns, length, "Dataset.from_parquet")
        self.columns = [*self._batches.types]
        try:
            for column, dtype in self._batches.types.items():
                if not self._can_hold(dtype):
                    raise InvalidArgumentError(
                        f"column {column!r} of {text_of(name)} is of {dtype}, which has no dtype "
                        "of NumPy; choose others by `columns`"
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
        """Index of the next row."""
        return self._row

    def close(self) -> None:
        """Closes the file."""
        self._batches.close()

    def read(self) -> dict[str, Array] | None:
        """The columns of the next rows, at least one; None at the end.

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
        """How many rows come before the first null that nothing stands for; at least one."""
        count = len(batch)
        for column, values in zip(self.columns, batch.columns, strict=True):
            if column in self._defaults or not values.null_count:
                continue
            first = int(np.asarray(values.is_null()).argmax())
            if first == 0:
                raise InvalidArgumentError(
                    f"Column {column!r} in row {self._row} of {text_of(self._name)} is null; "
                    f"pass record_defaults={{{column!r}: ...}} for what stands for it"
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
                    f"record_defaults of column {column!r}, which is of {values.type} in "
                    f"{text_of(self._name)}: {default!r:.80} is no such value: {error}"
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
                f"a list in column {column!r} of {text_of(self._name)} has a null, between rows "
                f"{self._row} and {self._row + len(values) - 1}; choose other columns"
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

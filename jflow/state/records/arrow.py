"""The rows of Parquet files as pyarrow batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jflow.errors import DataLossError, InvalidArgumentError
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.records.extras import needed
from jflow.state.records.reader import text_of


class ArrowBatches:
    """An open Parquet file.

    Args:
      name: name of the file.
      roots: the directories that may be read.
      columns: names of the columns to read; None for all.
      length: maximum number of rows in a batch.
      reader: name of the public reader, for errors.

    Attributes:
      arrow: the package pyarrow.
      n_rows: number of rows in the file.
      types: Arrow type of each column that is read.

    Raises:
      DataLossError: if the file is damaged.
      InvalidArgumentError: if there is no such column.
      UnimplementedError: if pyarrow is not installed.
    """

    def __init__(
        self,
        name: bytes,
        roots: AllowedDirectories,
        columns: Sequence[str] | None,
        length: int,
        reader: str,
    ) -> None:
        parquet = needed("pyarrow.parquet", "data", reader)
        self.arrow = needed("pyarrow", "data", reader)
        self._name, self._length = name, length
        self._input = roots.open(name)
        try:
            self._file = parquet.ParquetFile(self._input)
            self.n_rows: int = self._file.metadata.num_rows
            self.types: dict[str, Any] = self._types_of(columns)
        except (self.arrow.ArrowException, OSError) as error:
            self._input.close()
            raise DataLossError(f"{text_of(name)} is not a Parquet file: {error}") from error
        except BaseException:
            self._input.close()
            raise
        self._batches: Any = iter(())
        self._next_row = -1

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
        self._input.close()

    def at(self, index: int) -> Any:
        """Returns a batch that begins at the row with this index, which must exist.

        Raises:
          DataLossError: if the row cannot be read.
        """
        try:
            if index != self._next_row:
                self._go_to(index)
            while self._next_row <= index:
                batch = next(self._batches)
                self._next_row += batch.num_rows
        except (StopIteration, self.arrow.ArrowException, OSError) as error:
            raise DataLossError(
                f"row {index} of {text_of(self._name)} cannot be read: {error}"
            ) from error
        return batch.slice(batch.num_rows - (self._next_row - index))

    def _go_to(self, index: int) -> None:
        """Restarts reading at the row group that contains a row."""
        metadata, group, start = self._file.metadata, 0, 0
        while index >= start + metadata.row_group(group).num_rows:
            start += metadata.row_group(group).num_rows
            group += 1
        self._batches = self._file.iter_batches(
            self._length,
            row_groups=list(range(group, metadata.num_row_groups)),
            columns=list(self.types),
        )
        self._next_row = start

    def _types_of(self, columns: Sequence[str] | None) -> dict[str, Any]:
        schema = self._file.schema_arrow
        types = {}
        for column in schema.names if columns is None else columns:
            if schema.names.count(column) != 1:
                raise InvalidArgumentError(
                    f"{text_of(self._name)} has no column {column!r}, or several of that name; "
                    f"its columns are {schema.names}"
                )
            types[column] = schema.field(column).type
        return types

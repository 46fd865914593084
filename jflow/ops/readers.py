"""Readers: operations that take file names from a queue and return the records of the files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jflow.graph import Operation, Tensor
from jflow.ops.queue import QueueBase
from jflow.resources.reader import ReaderSpec
from jflow.stateful import Handle
from jflow.stateful.queue import as_integer, checked_count
from jflow.values import abstract, host_abstract, is_compatible, string, unknown_dim

_INT64 = np.dtype(np.int64)


class ReaderBase(Handle):
    """Reads records from work items, usually files, one item after the other.

    Work items come from a queue of strings on the same device. The container keeps the position of
    a reader with a shared name, so that a session resumes where another one ended. Files are read
    by the task that the reader is on: in this process any file that it may read, on a server those
    below its data roots.

    Args:
      kind: the kind of records.
      options: keyword arguments of that kind.
      shared_name: its name in the container; without one each session has its own.
      name: name of the operation that stands for it.
    """

    def __init__(
        self, kind: str, options: dict[str, Any], shared_name: str | None, name: str
    ) -> None:
        given = {key: value for key, value in options.items() if value is not None}
        super().__init__("reader", ReaderSpec(kind, given), shared_name, name)

    def read(self, queue: QueueBase, name: str | None = None) -> tuple[Tensor, Tensor]:
        """Key and value of the next record, both strings.

        If no work item is in progress it dequeues one, which can block. If the queue is closed and
        empty, the step fails with an OutOfRangeError.

        Raises:
          TypeError, ValueError: if it is no queue of single strings.
        """
        avals = [abstract((), string)] * 2
        name = name or f"{self._title}_Read"
        return self._read("reader.read", queue, [], avals, name, {})

    def read_up_to(
        self, queue: QueueBase, num_records: Any, name: str | None = None
    ) -> tuple[Tensor, Tensor]:
        """Keys and values, string[n], of up to `num_records` records of one work item.

        Raises:
          TypeError, ValueError: as `read`, or if `num_records` is no positive integer.
        """
        size = unknown_dim()
        avals = [abstract((size,), string)] * 2
        name = name or f"{self._title}_ReadUpTo"
        if getattr(num_records, "to_tensor", None) is not None:
            counts = [checked_count(self._graph.as_tensor(num_records))]
            return self._read("reader.read_up_to", queue, counts, avals, name, {})
        attributes = {"count": as_integer(num_records, "how many records to read")}
        if num_records <= 0:
            raise ValueError(f"expected a positive number of records, got {num_records}")
        return self._read("reader.read_up_to", queue, [], avals, name, attributes)

    def reset(self, name: str | None = None) -> Operation:
        """An operation that resets the work item and the counts; it leaves the queue unchanged."""
        return self._calls.call("reader.reset", [], [], name or f"{self._title}_Reset")

    def num_records_produced(self, name: str | None = None) -> Tensor:
        """How many records it has read, as an int64 scalar on the host."""
        return self._count("reader.n_records", name or f"{self._title}_NumRecordsProduced")

    def num_work_units_completed(self, name: str | None = None) -> Tensor:
        """How many work items it has read to the end, as an int64 scalar on the host."""
        name = name or f"{self._title}_NumWorkUnitsCompleted"
        return self._count("reader.n_work_units", name)

    def serialize_state(self, name: str | None = None) -> Tensor:
        """Its position as a string; only for kinds of readers that do not split work items."""
        name = name or f"{self._title}_SerializeState"
        return self._calls.call("reader.serialize", [], [abstract((), string)], name).outputs[0]

    def restore_state(self, state: Any, name: str | None = None) -> Operation:
        """An operation that resumes at the position of `state`.

        Args:
          state: string[], what `serialize_state` gave.
          name: name of the operation.

        Raises:
          TypeError, ValueError: if it is no single string.
        """
        name = name or f"{self._title}_RestoreState"
        tensor = self._calls.operand(state, string)
        if not is_compatible((), tensor.shape):
            raise ValueError(f"{self!r} is restored from one string, got {tensor!r}")
        return self._calls.call("reader.restore", [tensor], [], name)

    def _read(
        self,
        function: str,
        queue: QueueBase,
        counts: Sequence[Tensor],
        avals: Sequence[Any],
        name: str,
        attributes: dict[str, Any],
    ) -> tuple[Tensor, Tensor]:
        if not isinstance(queue, QueueBase):
            raise TypeError(f"{self!r} takes its work from a queue, got {queue!r}")
        if queue.dtypes != [string] or not is_compatible((), queue.shapes[0]):
            raise ValueError(
                f"{self!r} takes its work from a queue of single strings, got {queue!r} of "
                f"{[dtype.name for dtype in queue.dtypes]} with shapes {queue.shapes}"
            )
        op = self._calls.call(function, counts, avals, name, attributes, others=[queue.ref])
        keys, values = op.outputs
        return keys, values

    def _count(self, function: str, name: str) -> Tensor:
        aval = host_abstract((), _INT64)
        return self._calls.call(function, [], [aval], name, is_blocking=False).outputs[0]


class TextLineReader(ReaderBase):
    """Reads lines of text, without their ends; keys are "file:line", counted from 1.

    Args:
      skip_header_lines: how many lines to leave out at the beginning of each file.
      name, shared_name: as for `ReaderBase`.
      max_line_bytes: longer lines are an error; 16 MiB if None.
    """

    def __init__(
        self,
        skip_header_lines: int | None = None,
        name: str = "TextLineReader",
        *,
        shared_name: str | None = None,
        max_line_bytes: int | None = None,
    ) -> None:
        options = {"skip_header_lines": skip_header_lines, "max_line_bytes": max_line_bytes}
        super().__init__("TextLineReader", options, shared_name, name)


class FixedLengthRecordReader(ReaderBase):
    """Reads records of one length; keys are "file:record", counted from 0.

    Args:
      record_bytes: the length of a record.
      header_bytes, footer_bytes: what to leave out at the beginning and end of each file.
      hop_bytes: how far it is from one record to the next; the length of a record if None.
      name, shared_name: as for `ReaderBase`.
      encoding: "ZLIB" if files are compressed.
    """

    def __init__(
        self,
        record_bytes: int,
        header_bytes: int | None = None,
        footer_bytes: int | None = None,
        hop_bytes: int | None = None,
        name: str = "FixedLengthRecordReader",
        encoding: str | None = None,
        *,
        shared_name: str | None = None,
    ) -> None:
        options = {
            "record_bytes": record_bytes,
            "header_bytes": header_bytes,
            "footer_bytes": footer_bytes,
            "hop_bytes": hop_bytes,
            "encoding": encoding,
        }
        super().__init__("FixedLengthRecordReader", options, shared_name, name)


class TFRecordReader(ReaderBase):
    """Reads files of TFRecords, whose checksums are verified; keys are "file:offset".

    Args:
      name, shared_name: as for `ReaderBase`.
      compression: "GZIP" or "ZLIB" if files are compressed.
    """

    def __init__(
        self,
        name: str = "TFRecordReader",
        *,
        shared_name: str | None = None,
        compression: str | None = None,
    ) -> None:
        super().__init__("TFRecordReader", {"compression": compression}, shared_name, name)


class WholeFileReader(ReaderBase):
    """Reads each file as one record; keys are the files' names."""

    def __init__(self, name: str = "WholeFileReader", *, shared_name: str | None = None) -> None:
        super().__init__("WholeFileReader", {}, shared_name, name)


class IdentityReader(ReaderBase):
    """Returns each work item as key and value, without opening a file."""

    def __init__(self, name: str = "IdentityReader", *, shared_name: str | None = None) -> None:
        super().__init__("IdentityReader", {}, shared_name, name)


class ArrayRecordReader(ReaderBase):
    """Reads ArrayRecord files; keys are "file:record", counted from 0. Needs `jflow[data]`."""

    def __init__(self, name: str = "ArrayRecordReader", *, shared_name: str | None = None) -> None:
        super().__init__("ArrayRecordReader", {}, shared_name, name)


class ParquetReader(ReaderBase):
    """Reads the rows of Parquet files as serialized Examples, for `parse_example`.

    Keys are "file:row", counted from 0. Needs `jflow[data]`.

    Args:
      columns: which columns to read; all if None.
      name, shared_name: as for `ReaderBase`.
    """

    def __init__(
        self,
        columns: Sequence[str] | None = None,
        name: str = "ParquetReader",
        *,
        shared_name: str | None = None,
    ) -> None:
        options = {"columns": None if columns is None else [*columns]}
        super().__init__("ParquetReader", options, shared_name, name)

"""Readers: resources that dequeue file names and return the records of the files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jflow.base.values import abstract, host_abstract, is_compatible, string, unknown_dim
from jflow.client.ops.queue import QueueBase
from jflow.client.stateful import Handle
from jflow.client.stateful.queue import as_integer, checked_count
from jflow.compiler.graph import Operation, Symbolic, Tensor
from jflow.state.resources.reader import ReaderSpec

_INT64 = np.dtype(np.int64)


class ReaderBase(Handle):
    """Base class of readers, which read records from work items, usually files, one after another.

    Work items come from a queue of strings on the same device. The container keeps the position of
    a reader with a shared name, so a session resumes where another one ended. Files are read by
    the task of the reader: a local session may read all files of the process, a server only those
    below its data roots.

    Args:
      kind: format of the records, such as "TextLineReader".
      options: keyword arguments of the format.
      shared_name: name in the container, by which sessions share it; None for one per session.
      name: name of its handle op.
    """

    _instead_of_value = "read a record first: reader.read(queue)"

    def __init__(
        self, kind: str, options: dict[str, Any], shared_name: str | None, name: str
    ) -> None:
        attributes = {key: value for key, value in options.items() if value is not None}
        super().__init__("reader", ReaderSpec(kind, attributes), shared_name, name)

    def read(self, queue: QueueBase, name: str | None = None) -> tuple[Tensor, Tensor]:
        """Reads the next record.

        If no work item is in progress, it dequeues one, which can block.

        Args:
          queue: a queue of string scalars, the work items.
          name: name of the operation.

        Returns:
          Key and value, string[] each.

        Raises:
          TypeError, ValueError: if `queue` is not such a queue.
          OutOfRangeError: in the step, if the queue is closed and empty.
          DataLossError: in the step, if a file is damaged.
        """
        avals = [abstract((), string)] * 2
        name = name or f"{self._title}_Read"
        return self._read("reader.read", queue, [], avals, name, {})

    def read_up_to(
        self, queue: QueueBase, num_records: Any, name: str | None = None
    ) -> tuple[Tensor, Tensor]:
        """Reads up to `num_records` records of one work item.

        Args:
          queue: a queue of string scalars, the work items.
          num_records: integer scalar, at least 1.
          name: name of the operation.

        Returns:
          Keys and values, string[n] each, with 1 <= n <= num_records.

        Raises:
          TypeError, ValueError: as `read`, or if `num_records` is not a positive integer.
          OutOfRangeError, DataLossError: in the step, as `read`.
        """
        size = unknown_dim()
        avals = [abstract((size,), string)] * 2
        name = name or f"{self._title}_ReadUpTo"
        if isinstance(num_records, Symbolic):
            counts = [checked_count(self._graph.as_tensor(num_records))]
            return self._read("reader.read_up_to", queue, counts, avals, name, {})
        attributes = {"count": as_integer(num_records, "how many records to read")}
        if num_records <= 0:
            raise ValueError(f"expected a positive number of records, got {num_records}")
        return self._read("reader.read_up_to", queue, [], avals, name, attributes)

    def reset(self, name: str | None = None) -> Operation:
        """Returns an operation that drops the current work item and resets the counts to 0."""
        return self._calls.call("reader.reset", [], [], name or f"{self._title}_Reset")

    def num_records_produced(self, name: str | None = None) -> Tensor:
        """Returns the number of records read so far, i64[] on the host."""
        return self._count("reader.n_records", name or f"{self._title}_NumRecordsProduced")

    def num_work_units_completed(self, name: str | None = None) -> Tensor:
        """Returns the number of work items read to the end, i64[] on the host."""
        name = name or f"{self._title}_NumWorkUnitsCompleted"
        return self._count("reader.n_work_units", name)

    def serialize_state(self, name: str | None = None) -> Tensor:
        """Returns the state of the reader, string[], for `restore_state`.

        Raises:
          UnimplementedError: in the step, if the reader splits work items into records; only an
            `IdentityReader` and a `WholeFileReader` have a state that can be saved.
        """
        name = name or f"{self._title}_SerializeState"
        return self._calls.call("reader.serialize", [], [abstract((), string)], name).outputs[0]

    def restore_state(self, state: Any, name: str | None = None) -> Operation:
        """Returns an operation that sets the state of the reader.

        Args:
          state: string[], a result of `serialize_state` of a reader of this kind.
          name: name of the operation.

        Raises:
          TypeError, ValueError: if it is not a string scalar.
          InvalidArgumentError: in the step, if it is not a state of such a reader.
          UnimplementedError: in the step, as `serialize_state`.
        """
        name = name or f"{self._title}_RestoreState"
        tensor = self._calls.operand(state, string)
        if not is_compatible((), tensor.aval.shape):
            raise ValueError(f"{self!r} expects its state as a string scalar, got {tensor!r}")
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
    """Reads lines of text, without line ends; keys are `file:line`, counted from 1.

    Args:
      skip_header_lines: number of lines to skip at the start of each file.
      name, shared_name: as for `ReaderBase`.
      max_line_bytes: maximum length of a line in bytes; None for 16 MiB.
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
    """Reads records of a fixed length; keys are `file:record`, counted from 0.

    Args:
      record_bytes: length of a record in bytes.
      header_bytes, footer_bytes: number of bytes to skip at the start and end of each file.
      hop_bytes: distance in bytes from the start of a record to that of the next; None for
        `record_bytes`.
      name, shared_name: as for `ReaderBase`.
      encoding: "ZLIB" for compressed files; None for others.
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
    """Reads TFRecord files and verifies their checksums; keys are `file:offset`.

    Args:
      name, shared_name: as for `ReaderBase`.
      compression: "GZIP" or "ZLIB" for compressed files; None for others.
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
    """Reads each file as one record; keys are file names."""

    def __init__(self, name: str = "WholeFileReader", *, shared_name: str | None = None) -> None:
        super().__init__("WholeFileReader", {}, shared_name, name)


def read_file(filename: Any, name: str | None = None) -> Tensor:
    """Returns the contents of a file.

    As with readers, the file is read by the task of the operation, in each step that needs it: a
    local session may read all files of the process, a server only those below its data roots.

    Args:
      filename: string[].
      name: name of the operation.

    Returns:
      string[].

    Raises:
      TypeError, ValueError: if `filename` is not a string scalar.
      NotFoundError: in the step, if there is no such file.
      PermissionDeniedError: in the step, if the task may not read it.
      ResourceExhaustedError: in the step, if it has more than 1 GiB.
    """
    reader = WholeFileReader(name="file_reader")
    file = reader._calls.operand(filename, string)
    if not is_compatible((), file.aval.shape):
        raise ValueError(f"expected one file name, got {file!r}")
    avals = [abstract((), string)]
    name = name or "ReadFile"
    return reader._calls.call("reader.read_file", [file], avals, name, is_blocking=False).outputs[0]


class IdentityReader(ReaderBase):
    """Returns each work item as both key and value, without opening a file."""

    def __init__(self, name: str = "IdentityReader", *, shared_name: str | None = None) -> None:
        super().__init__("IdentityReader", {}, shared_name, name)


class ArrayRecordReader(ReaderBase):
    """Reads ArrayRecord files; keys are `file:record`, counted from 0. Requires `jflow[data]`."""

    def __init__(self, name: str = "ArrayRecordReader", *, shared_name: str | None = None) -> None:
        super().__init__("ArrayRecordReader", {}, shared_name, name)


class ParquetReader(ReaderBase):
    """Reads the rows of Parquet files as serialized Examples, for `parse_example`.

    Keys are `file:row`, counted from 0. Requires `jflow[data]`.

    Args:
      columns: names of the columns to read; None for all.
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

"""Snapshots of readers."""

from __future__ import annotations

from dataclasses import dataclass

from jflow.resources.reader.spec import ReaderSpec

Offset = int | tuple[int, ...] | None
"""How far a work item has been read, as `jflow.records` counts; None at its beginning."""


@dataclass(frozen=True)
class ReaderSnapshot:
    """The position of a reader.

    Records that a step is just reading count as not read. The file of the work item is opened by
    the next step that reads.

    Attributes:
      spec: what the reader is made as.
      work: the work item that is being read, None between two of them.
      position: how far it has been read.
      n_records: how many records the reader has read.
      n_work_units: how many work items it has read to their end.
    """

    spec: ReaderSpec
    work: bytes | None
    position: Offset
    n_records: int
    n_work_units: int

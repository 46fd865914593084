"""Snapshots of readers."""

from __future__ import annotations

from typing import ClassVar

from jflow.base.packing import Limits
from jflow.state.resources.reader.spec import ReaderSpec
from jflow.state.resources.snapshot import PlainSnapshot

Offset = int | tuple[int, ...] | None
"""How far a work item has been read, in the units of its kind; None at its beginning."""


class ReaderSnapshot(PlainSnapshot, frozen=True):
    """The position of a reader.

    Records that a step is reading at the moment count as not read. After a restore the next step
    that reads opens the file of the work item.

    Attributes:
      spec: the definition of the reader.
      work: the current work item; None between two of them.
      position: how far it has been read.
      n_records: the number of records read.
      n_work_units: the number of work items read to their end.
    """

    what = "snapshot of a reader"
    limits: ClassVar[Limits] = Limits(1 << 28, 1 << 28)

    spec: ReaderSpec
    work: bytes | None
    position: Offset
    n_records: int
    n_work_units: int

"""Snapshots of value tables: they hold no values."""

from __future__ import annotations

from typing import Self

from jflow.base.packing import Record
from jflow.state.resources.snapshot import PackedSnapshot, check_count
from jflow.state.resources.value_table.spec import ValueTableSpec


class ValueTableSnapshot(Record, frozen=True):
    """What is saved of a value table, whose values are no state of a program: only what it is.

    Attributes:
      spec: the definition of the table.
    """

    what = "snapshot of a value table"

    spec: ValueTableSpec

    def packed(self) -> PackedSnapshot:
        """See `Snapshot`."""
        return PackedSnapshot(self.to_bytes())

    @classmethod
    def unpacked(cls, packed: PackedSnapshot) -> Self:
        """See `Snapshot`."""
        check_count(packed.arrays, 0, cls.what)
        return cls.from_bytes(packed.record)

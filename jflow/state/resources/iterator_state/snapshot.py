"""Snapshots of iterator states."""

from __future__ import annotations

from typing import ClassVar, Self

from jflow.base.packing import Limits, Record
from jflow.state.resources.iterator_state.spec import IteratorStateSpec
from jflow.state.resources.snapshot import PackedSnapshot, check_count


class IteratorStateSnapshot(Record, frozen=True):
    """The text that an iterator saved last.

    Attributes:
      spec: the definition of the iterator state.
      text: the text, UTF-8; None if nothing was saved.
    """

    what = "snapshot of an iterator state"
    limits: ClassVar[Limits] = Limits(1 << 28, 1 << 28)

    spec: IteratorStateSpec
    text: bytes | None

    def packed(self) -> PackedSnapshot:
        """See `Snapshot`."""
        return PackedSnapshot(self.to_bytes())

    @classmethod
    def unpacked(cls, packed: PackedSnapshot) -> Self:
        """See `Snapshot`."""
        check_count(packed.arrays, 0, cls.what)
        return cls.from_bytes(packed.record)

"""The ledger of a task in checkpoints, in the form of snapshots of resources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from jflow.state.effects import SavedLedger, SavedWindows
from jflow.state.resources.snapshot import PackedSnapshot, check_count
from jflow.state.resources.spec import Spec


class LedgerSpec(Spec, frozen=True):
    """The spec of every ledger; it has no parameters."""

    what = "ledger of effects"


@dataclass(frozen=True, eq=False)
class LedgerSnapshot:
    """Which steps a task has applied that may still be repeated."""

    ledger: SavedLedger

    @property
    def spec(self) -> LedgerSpec:
        """See `Snapshot`."""
        return LedgerSpec()

    def packed(self) -> PackedSnapshot:
        """See `Snapshot`."""
        return PackedSnapshot(self.ledger.saved.to_bytes(), self.ledger.arrays)

    @classmethod
    def unpacked(cls, packed: PackedSnapshot) -> Self:
        """See `Snapshot`."""
        ledger = SavedLedger(SavedWindows.from_bytes(packed.record), packed.arrays)
        check_count(packed.arrays, ledger.n_arrays, LedgerSpec.what)
        return cls(ledger)

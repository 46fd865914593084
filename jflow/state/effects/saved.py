"""`SavedLedger`: the part of a ledger that checkpoints keep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from jflow.base.packing import Limits, Meta, Record, Size
from jflow.base.values import Array
from jflow.state.effects.ledger import Ledger, LedgerEntry, LedgerWindow
from jflow.state.effects.outcome import Phase


class SavedEffect(Record, frozen=True):
    """The record of a step that was applied.

    Attributes:
      sequence, attempt: as in `Effect`.
      n_results: how many arrays it gave; -1 if they were not kept.
    """

    what = "applied step of a checkpoint"

    sequence: Size
    attempt: Size
    n_results: Annotated[int, Meta(ge=-1, le=2**31 - 1)]


class SavedWindow(Record, frozen=True):
    """The record of the applied, unacknowledged steps of one epoch of a client."""

    what = "window of a checkpoint"

    client: str
    epoch: Size
    acknowledged: Size
    effects: tuple[SavedEffect, ...]


class SavedWindows(Record, frozen=True):
    """The record of all windows of a task; the results are the arrays beside it, in order."""

    what = "windows of a checkpoint"
    limits: ClassVar[Limits] = Limits(n_bytes=1 << 28, n_items=1 << 24)

    windows: tuple[SavedWindow, ...]


@dataclass(frozen=True, eq=False)
class SavedLedger:
    """The part of a ledger that checkpoints keep: the applied steps and their results.

    Errors of applied steps are not kept: a repeat is told that the results are gone.

    Attributes:
      saved: all but the results.
      arrays: the results.
    """

    saved: SavedWindows
    arrays: tuple[Array, ...]

    @classmethod
    def of(cls, ledger: Ledger, clients: str = "") -> SavedLedger:
        """Returns the steps that a ledger has as applied, and their results.

        Args:
          ledger: the ledger.
          clients: how the names of the clients begin whose steps are meant; "" for all.
        """
        arrays: list[Array] = []
        windows = []
        for (client, epoch), window in ledger.saved_windows(clients):
            effects = []
            for sequence, entry in window.entries.items():
                if entry.phase is Phase.COMMITTED:
                    n_results = -1 if entry.results is None else len(entry.results)
                    effects.append(SavedEffect(sequence, entry.attempt, n_results))
                    arrays += entry.results or ()
            windows.append(SavedWindow(client, epoch, window.acknowledged, tuple(effects)))
        return cls(SavedWindows(tuple(windows)), tuple(arrays))

    @property
    def n_arrays(self) -> int:
        """The number of arrays that the record describes."""
        return sum(
            max(effect.n_results, 0) for window in self.saved.windows for effect in window.effects
        )

    def restore(self, ledger: Ledger, clients: str = "") -> None:
        """Replaces the saved part of a ledger with this one, of the clients that `of` describes."""
        windows = []
        rest = iter(self.arrays)
        for saved in self.saved.windows:
            window = LedgerWindow(acknowledged=saved.acknowledged)
            for effect in saved.effects:
                window.entries[effect.sequence] = LedgerEntry(
                    fence=effect.attempt,
                    attempt=effect.attempt,
                    phase=Phase.COMMITTED,
                    results=_next_results(rest, effect.n_results),
                )
            windows.append(((saved.client, saved.epoch), window))
        ledger.restore(windows, clients)


NOTHING_APPLIED = SavedLedger(SavedWindows(()), ())
"""The saved ledger of a task that has applied no step yet."""


def _next_results(rest: Iterator[Array], n_results: int) -> tuple[Array, ...] | None:
    return None if n_results < 0 else tuple(next(rest) for _ in range(n_results))

"""The applied steps of a ledger: `SavedLedger` in checkpoints, `MovedLedger` with moved state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, ClassVar

from jflow.base.packing import Limits, Meta, Record, Size
from jflow.base.values import Array
from jflow.errors import AbortedError, InvalidArgumentError
from jflow.state.effects.effect import EffectKey
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

    what = "window of a ledger"

    client: str
    epoch: Size
    acknowledged: Size
    effects: tuple[SavedEffect, ...]


class SavedWindows(Record, frozen=True):
    """The record of all windows of a task; the results are the arrays beside it, in order."""

    what = "windows of a checkpoint"
    limits: ClassVar[Limits] = Limits(n_bytes=1 << 28, n_items=1 << 24)

    windows: tuple[SavedWindow, ...]

    @property
    def n_arrays(self) -> int:
        """The number of results."""
        return sum(max(one.n_results, 0) for window in self.windows for one in window.effects)


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
    def of(cls, ledger: Ledger, clients: str = "", *, is_saved: bool = True) -> SavedLedger:
        """Returns the steps that a ledger has as applied, and their results.

        Args:
          ledger, clients: as for `Ledger.windows`.
          is_saved: False for the steps of sessions, which checkpoints do not keep.
        """
        arrays: list[Array] = []
        windows = []
        for (client, epoch), window in ledger.windows(clients, is_saved=is_saved):
            effects = []
            for sequence, entry in window.entries.items():
                if entry.phase is Phase.COMMITTED:
                    n_results = -1 if entry.results is None else len(entry.results)
                    effects.append(SavedEffect(sequence, entry.attempt, n_results))
                    arrays += entry.results or ()
            windows.append(SavedWindow(client, epoch, window.acknowledged, tuple(effects)))
        return cls(SavedWindows(tuple(windows)), tuple(arrays))

    def restore(self, ledger: Ledger, clients: str = "") -> None:
        """Replaces the saved part of a ledger with this one, of the clients that `of` describes."""
        ledger.restore(self.windows(), clients)

    def windows(self, *, is_saved: bool = True) -> list[tuple[tuple[str, int], LedgerWindow]]:
        """Returns the windows, of steps that checkpoints keep or do not keep."""
        windows = []
        rest = iter(self.arrays)
        for saved in self.saved.windows:
            window = LedgerWindow(saved.acknowledged, is_saved)
            for effect in saved.effects:
                n_results = effect.n_results
                window.entries[effect.sequence] = LedgerEntry(
                    fence=effect.attempt,
                    attempt=effect.attempt,
                    phase=Phase.COMMITTED,
                    results=None if n_results < 0 else tuple(islice(rest, n_results)),
                )
            windows.append(((saved.client, saved.epoch), window))
        return windows


class WideStep(Record, frozen=True):
    """The record of a step that was applied on several tasks.

    Attributes:
      client, epoch, sequence, attempt: as in `Effect`.
      participants: the tasks that it wrote on; empty if it is past.
    """

    client: str
    epoch: Size
    sequence: Size
    attempt: Size
    participants: tuple[str, ...]


class MovedWindows(Record, frozen=True):
    """The record of the steps that a task has applied, for the task to which its state moves.

    Attributes:
      saved: those that checkpoints keep.
      of_sessions: the others.
      wide: those of both that other tasks may ask for, and past ones.
    """

    what = "applied steps of state that moves"
    limits: ClassVar[Limits] = SavedWindows.limits

    saved: SavedWindows
    of_sessions: SavedWindows
    wide: tuple[WideStep, ...]


@dataclass(frozen=True, eq=False)
class MovedLedger:
    """The applied steps of a task, for the task to which its state moves.

    A later attempt of a step goes where the state is, and has to find there what an earlier one has
    done. All steps go along: a ledger does not say which state a step has written.

    Attributes:
      saved, of_sessions, wide: as in `MovedWindows`.
    """

    saved: SavedLedger
    of_sessions: SavedLedger
    wide: tuple[WideStep, ...]

    @classmethod
    def of(cls, ledger: Ledger) -> MovedLedger:
        """Returns the applied steps of a ledger."""
        wide = tuple(WideStep(*key, attempt, tasks) for key, attempt, tasks in ledger.wide_steps())
        return cls(SavedLedger.of(ledger), SavedLedger.of(ledger, is_saved=False), wide)

    def packed(self) -> tuple[bytes, list[Array]]:
        """Returns the record, and the results."""
        record = MovedWindows(self.saved.saved, self.of_sessions.saved, self.wide)
        return record.to_bytes(), [*self.saved.arrays, *self.of_sessions.arrays]

    @classmethod
    def unpacked(cls, record: bytes, arrays: Sequence[Array]) -> MovedLedger:
        """Returns what `packed` gave. Raises InvalidArgumentError if it is malformed."""
        windows = MovedWindows.from_bytes(record)
        n_saved = windows.saved.n_arrays
        n_results = n_saved + windows.of_sessions.n_arrays
        if len(arrays) != n_results:
            raise InvalidArgumentError(f"applied steps have {n_results} results, got {len(arrays)}")
        return cls(
            SavedLedger(windows.saved, tuple(arrays[:n_saved])),
            SavedLedger(windows.of_sessions, tuple(arrays[n_saved:])),
            windows.wide,
        )

    def add_to(self, ledger: Ledger) -> None:
        """Adds the steps to those that a ledger has.

        Raises:
          AbortedError: if one of them is not decided there yet, though it is applied here: its part
            there would not learn of that any more.
        """
        windows = [*self.saved.windows(), *self.of_sessions.windows(is_saved=False)]
        for key in ledger.open_among(windows):
            raise AbortedError(
                f"step {key.sequence} of {key.client!r} is applied where the state is, but not "
                "decided yet where it is to move; try again later"
            )
        by_key = dict(windows)
        for step in self.wide:
            window = by_key.get((step.client, step.epoch))
            entry = None if window is None else window.entries.get(step.sequence)
            if entry is not None and step.participants:
                entry.participants = step.participants
            else:
                ledger.add_past(EffectKey(step.client, step.epoch, step.sequence), step.attempt)
        ledger.add(windows)


NOTHING_APPLIED = SavedLedger(SavedWindows(()), ())
"""The saved ledger of a task that has applied no step yet."""

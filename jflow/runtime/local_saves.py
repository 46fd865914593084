"""`LocalSaves`: saves and restores the state of a local session, in the caller's thread."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from queue import SimpleQueue
from typing import TypeVar

import jax

from jflow.checkpoint import ANYWHERE, commit, locate, open_checkpoint
from jflow.deadline import Deadline, seconds_text
from jflow.errors import DeadlineExceededError
from jflow.execution.blocking import run_fibers
from jflow.execution.gate import StepGate
from jflow.moves import StateId
from jflow.resources import Containers, Wanted, wait_for
from jflow.saves import (
    PATIENCE_S,
    RestoreOfTask,
    SaveReport,
    SnapshotOfTask,
    StateItems,
    pauses,
)

_SHARD = "local-0"

R = TypeVar("R")


class LocalSaves:
    """Saves and restores of one local session.

    Args:
      containers: its state.
      gate: what its steps wait at.
      devices: its devices, by name.
    """

    def __init__(
        self, containers: Containers, gate: StepGate, devices: Mapping[str, jax.Device]
    ) -> None:
        self._containers = containers
        self._gate = gate
        self._devices = devices

    def save(
        self, prefix: str, items: StateItems, about: Mapping[str, str], deadline: Deadline
    ) -> SaveReport:
        """See `Backend.save`."""
        begun = time.monotonic()
        states = [item.state for item in items.items]

        def take(limit: Deadline) -> tuple[SnapshotOfTask, float]:
            start = time.monotonic()
            snapshot = SnapshotOfTask(self._containers, items)
            try:
                with self._gate.pausing(states, limit):
                    _wait([snapshot.closing, snapshot.wanted], limit)
                    snapshot.take()
            except BaseException:
                snapshot.drop()
                raise
            finally:
                snapshot.reopen()
            return snapshot, time.monotonic() - start

        snapshot, held_s = _until_undisturbed(take, states, deadline)
        number = secrets.token_hex(8)
        try:
            shard = snapshot.write(prefix, number, _SHARD, ANYWHERE)
            with locate(prefix) as place:
                commit(place, number, [shard], about=about)
        finally:
            snapshot.drop()
        return SaveReport(snapshot.n_bytes, held_s, time.monotonic() - begun)

    def restore(self, prefix: str, items: StateItems, deadline: Deadline) -> SaveReport:
        """See `Backend.restore`."""
        begun = time.monotonic()
        states = [item.state for item in items.items]
        with open_checkpoint(prefix) as checkpoint:
            device_of = self._devices.__getitem__
            restore = RestoreOfTask(self._containers, items, checkpoint, device_of)

        def put(limit: Deadline) -> float:
            start = time.monotonic()
            try:
                with self._gate.pausing(states, limit, is_exclusive=True):
                    _wait([restore.closing, restore.wanted], limit)
                    restore.finish()
            finally:
                restore.reopen()
            return time.monotonic() - start

        held_s = _until_undisturbed(put, states, deadline)
        return SaveReport(restore.n_bytes, held_s, time.monotonic() - begun)


def _until_undisturbed(
    act: Callable[[Deadline], R], states: Sequence[StateId], deadline: Deadline
) -> R:
    """Acts with a short deadline, and again with longer ones if steps do not end in time."""
    patience = deadline if deadline.timeout is not None else Deadline(PATIENCE_S)
    for seconds in pauses():
        try:
            return act(Deadline(seconds))
        except DeadlineExceededError as error:
            if (patience.remaining() or 0.0) <= seconds:
                raise DeadlineExceededError(
                    f"steps that change {states[0]} did not end within "
                    f"{seconds_text(patience.timeout or 0.0)}, and nothing was done; a step that "
                    f"waits for a queue cannot be waited for ({error.message})"
                ) from None
            time.sleep(seconds)  # what was held back goes on meanwhile
    raise AssertionError("attempts never end")


def _wait(wanted: Sequence[Wanted], deadline: Deadline) -> None:
    def waiting() -> Generator[Wanted, None, None]:
        for cell, attempt in wanted:
            yield from wait_for(cell, attempt)

    run_fibers({0: waiting()}, {0: ()}, deadline, SimpleQueue())

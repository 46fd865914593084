"""`LocalSaves`: saves and restores the state of a local session, in the caller's thread."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from queue import SimpleQueue
from typing import TypeVar

import jax

from jflow.checkpoint_files import ANYWHERE, commit, locate, open_checkpoint
from jflow.cluster import LOCAL_TASK
from jflow.deadline import Deadline
from jflow.errors import DeadlineExceededError
from jflow.execution.blocking import run_fibers
from jflow.execution.gate import StepGate
from jflow.moves import StateId
from jflow.resources import Containers, Wanted, wait_for
from jflow.saves import Pauses, RestoreOfTask, SaveReport, SnapshotOfTask, StateItems

_SHARD = "local-0"
_TASKS = (str(LOCAL_TASK),)

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

        def take(limit: Deadline, _: Deadline) -> SnapshotOfTask:
            snapshot = SnapshotOfTask(self._containers, items)
            try:
                _wait(snapshot.wanted, limit)
                snapshot.take()
            except BaseException:
                snapshot.drop()
                raise
            return snapshot

        snapshot, held_s = self._undisturbed(take, states, deadline)
        number = secrets.token_hex(8)
        try:
            shard = snapshot.write(prefix, number, _SHARD, ANYWHERE)
            with locate(prefix) as place:
                commit(place, number, [shard], about=about)
                path = place.path
        finally:
            snapshot.drop()
        return SaveReport(snapshot.n_bytes, held_s, time.monotonic() - begun, path, _TASKS)

    def restore(self, prefix: str, items: StateItems, deadline: Deadline) -> SaveReport:
        """See `Backend.restore`."""
        begun = time.monotonic()
        states = [item.state for item in items.items]
        with open_checkpoint(prefix) as checkpoint:
            device_of = self._devices.__getitem__
            restore = RestoreOfTask(self._containers, items, checkpoint, device_of)
            path = checkpoint.path

        def put(_: Deadline, patience: Deadline) -> None:
            _wait(restore.wanted, patience)
            restore.finish()

        _, held_s = self._undisturbed(put, states, deadline, is_exclusive=True)
        return SaveReport(restore.n_bytes, held_s, time.monotonic() - begun, path, _TASKS)

    def _undisturbed(
        self,
        act: Callable[[Deadline, Deadline], R],
        states: Sequence[StateId],
        deadline: Deadline,
        *,
        is_exclusive: bool = False,
    ) -> tuple[R, float]:
        """Acts while no step is running whose changes could be seen in part.

        Args:
          act: takes the deadline of the attempt and that of all attempts.
          states: what is saved or restored.
          deadline: of the call.
          is_exclusive: whether steps that only read the states have to end, too.

        Returns:
          What `act` returns, and how long steps were held back, in seconds.

        Raises:
          DeadlineExceededError: if steps that run do not end in time.
        """
        attempts = Pauses(states, deadline)
        for seconds in attempts:
            begun, limit, closing = time.monotonic(), Deadline(seconds), self._containers.closing()
            try:
                with self._gate.pausing(states, limit, is_exclusive=is_exclusive):
                    _wait(closing, limit)
                    result = act(limit, attempts.patience)
                return result, time.monotonic() - begun
            except DeadlineExceededError as error:
                attempts.failed(seconds, error)
            finally:
                self._containers.reopen(closing)
            time.sleep(seconds)  # what was held back goes on meanwhile
        raise AssertionError("attempts never end")


def _wait(wanted: Wanted, deadline: Deadline) -> None:
    def waiting() -> Generator[Wanted, None, None]:
        yield from wait_for(*wanted)

    run_fibers({0: waiting()}, {0: ()}, deadline, SimpleQueue())

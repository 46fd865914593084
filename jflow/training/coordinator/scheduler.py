"""The scheduler of closures: a state machine without clock, thread or socket.

Events go in by method, with the present time where it matters; each returns the actions that follow
from it, which the engine carries out in order. Rules:

- A closure ends exactly once: by `Complete`, `FailClosure`, `Expire`, `FailInput` or `Drop`.
- A worker that is free gets the closure of the highest priority that it may run, the oldest first.
  It is given closures ahead as long as those it has are expected to take less than `AHEAD_S`,
  and a second one if the first takes less than `SECOND_WITHIN_S`.
- Closures of one kind that are next in the order may run as one attempt, a batch.
- An attempt that is lost with its worker puts its closures back at their places in the order. One
  that fails fails its closure; the closures of a batch that fails run again, one by one.
- In exactly-once mode every attempt of a closure has an ordinal. The runtime applies the writes of
  one of them; a later one fences off an earlier one, or is answered with what that has done.
- A batch in exactly-once mode has one effect, whose outcome may be unknown. So its closures stay
  together: they run again as the same batch, and fail with it. It is taken apart only if its latest
  attempt fails and is known to have applied nothing.
- After the first failure the caller calls `cancel_all`, which cancels all that is open; then
  `is_idle` says when nothing is running. A closure that is put back in between is dropped.
- A closure or batch that takes much longer than others of its kind gets one more attempt on an
  idle worker, if that is harmless; the first attempt to end counts.
- A closure that takes results which workers have runs where most of them are, if there is room.
  Results that are lost and wanted are computed again first (`result_locations.py`).

What is decided is split by concern, and none of these knows of the scheduler: `open_closures.py`,
`attempts.py`, `workers.py` and `result_locations.py` are what is known, `lifecycle.py` says how
closures wait and end, and `assigner.py` what workers are given.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from jflow.training.coordinator.assigner import Assigner
from jflow.training.coordinator.attempts import Attempts
from jflow.training.coordinator.events import Action, Closure, WorkerIndex
from jflow.training.coordinator.lifecycle import Lifecycle
from jflow.training.coordinator.open_closures import Backlog, OpenClosures
from jflow.training.coordinator.result_locations import ResultLocations
from jflow.training.coordinator.workers import Workers


class ClosureScheduler:
    """Decides which closure runs where, and how each of them ends.

    Its parts can be read at any time; events alone change them.

    Args:
      n_workers: how many workers there are at first; they are down until `worker_up`.

    Attributes:
      closures: the closures that have not ended.
      backlog: those of them that are ready.
      attempts: the attempts that have not come back.
      workers: the workers.
      locations: the results that workers have.
    """

    def __init__(self, n_workers: int = 0) -> None:
        self._actions: list[Action] = []
        emit = self._actions.append
        self.closures, self.backlog = OpenClosures(), Backlog()
        self.workers, self.locations = Workers(n_workers), ResultLocations()
        self.attempts = Attempts(self.closures, self.workers, emit)
        known = self.backlog, self.attempts, self.workers, self.locations
        self._lifecycle = Lifecycle(self.closures, *known, emit)
        self._assigner = Assigner(*known, emit)

    @property
    def is_idle(self) -> bool:
        """Whether every closure has ended and no attempt is running."""
        return not self.closures and not self.attempts

    @property
    def has_error(self) -> bool:
        """Whether a closure has failed since the last `clear`."""
        return self._lifecycle.has_error

    # Events: closures ---------------------------------------------------------------------------

    def add(self, closure: Closure, now: float) -> list[Action]:
        """Adds a closure. Inputs that are not open have succeeded."""
        self._lifecycle.queue(self.closures.add(closure))
        return self._assigned(now)

    def cancel(self, number: int, now: float) -> list[Action]:
        """Cancels a closure for its user; what is running is stopped where it can be."""
        opened = self.closures.get(number)
        if opened is None:
            return []
        self._lifecycle.drop(opened, by_user=True)
        return self._assigned(now)

    def tick(self, now: float) -> list[Action]:
        """Handles the present time: closures expire, and stragglers are run a second time."""
        for opened in self.closures.expired(now):
            self._lifecycle.expire(opened)
        self._assigner.assign(now)
        if not self.has_error:
            self._assigner.reissue(now)
        return self._decided()

    # Events: attempts ---------------------------------------------------------------------------

    def finished(self, number: int, now: float, dispatch_s: float | None = None) -> list[Action]:
        """Handles the success of an attempt; in exactly-once mode its writes are committed.

        Args:
          number: the attempt.
          now: the time.
          dispatch_s: the processor time that it took to start it, in seconds, if that is known.
        """
        removed = self.attempts.remove(number)
        if removed is None:
            return []
        attempt, closures = removed
        if closures:
            self._assigner.note(attempt, now, dispatch_s)
        for opened in closures:
            self._lifecycle.complete(opened, attempt)
        return self._assigned(now)

    def failed(
        self, number: int, error: BaseException, now: float, *, is_rolled_back: bool = False
    ) -> list[Action]:
        """Handles an attempt that failed by itself.

        Args:
          number: the attempt.
          error: what it failed with.
          now: the time.
          is_rolled_back: in exactly-once mode, whether neither this attempt nor an earlier one has
            applied anything, or will.
        """
        removed = self.attempts.remove(number)
        if removed is None:
            return []
        attempt, closures = removed
        for opened in closures:
            self._lifecycle.attempt_failed(opened, attempt, error, is_rolled_back=is_rolled_back)
        return self._assigned(now)

    def lost(self, number: int, now: float) -> list[Action]:
        """Handles an attempt that was lost with its worker or cancelled: its closures run again."""
        self._put_back(number)
        return self._assigned(now)

    # Events: results that workers have ----------------------------------------------------------

    def want(self, number: int, now: float) -> list[Action]:
        """Requests a result for the coordinator; a lost one is recomputed."""
        return self._assigned(now) if self._lifecycle.reopen(number) else []

    def result_read(self, number: int, now: float) -> list[Action]:
        """Records that the coordinator has a copy of a result, perhaps of one lost meanwhile."""
        self.locations.copied(number)
        runs_again = self.closures.get(number)
        if runs_again is None:
            return []
        self._lifecycle.supply(runs_again)
        return self._assigned(now)

    def results_lost(self, numbers: Iterable[int], now: float) -> list[Action]:
        """Handles results that could not be read from their worker."""
        self._lifecycle.mark_results_lost(numbers)
        return self._assigned(now)

    # Events: workers ----------------------------------------------------------------------------

    def add_worker(self, worker: WorkerIndex) -> None:
        """Adds a worker, which is down until `worker_up`."""
        self.workers.add(worker)

    def worker_up(self, worker: WorkerIndex, now: float) -> list[Action]:
        """Marks a worker as reachable and ready for closures."""
        return self._assigned(now) if self.workers.up(worker) else []

    def worker_down(self, worker: WorkerIndex, now: float) -> list[Action]:
        """Marks a worker as unreachable; its attempts are lost."""
        if not self.workers.down(worker):
            return []
        self._assigner.forget_worker(worker)
        self._lifecycle.mark_results_lost(self.locations.on(worker))
        for number in self.attempts.of(worker):
            self._put_back(number)
        return self._assigned(now)

    def worker_leaves(self, worker: WorkerIndex, error: BaseException, now: float) -> list[Action]:
        """Assigns no more closures to a worker; those that only it may run fail with the error."""
        if not self.workers.leave(worker, error):
            return []  # it has left after an earlier call
        self._lifecycle.mark_results_lost(self.locations.on(worker))
        self._lifecycle.requeue(lambda closure: closure.worker == worker)
        return self._assigned(now)

    def batch_ready(self, worker: WorkerIndex, kind: Hashable, now: float) -> list[Action]:
        """Records that batches of a kind are compiled for a worker."""
        self._assigner.batches.compiled(kind, worker)
        return self._assigned(now)

    # Events: errors -----------------------------------------------------------------------------

    def cancel_all(self) -> list[Action]:
        """Cancels all open closures, because an error is about to be reported."""
        for opened in [*self.closures]:
            if opened.closure.number in self.closures:
                self._lifecycle.drop(opened, by_user=False)
        return self._decided()

    def clear(self) -> None:
        """Forgets the error, which was reported."""
        self._lifecycle.has_error = False

    # What follows -------------------------------------------------------------------------------

    def _put_back(self, number: int) -> None:
        removed = self.attempts.remove(number)
        for opened in removed[1] if removed else ():
            self._lifecycle.put_back(opened)

    def _assigned(self, now: float) -> list[Action]:
        """Returns the actions after an event that allows assignments."""
        self._assigner.assign(now)
        return self._decided()

    def _decided(self) -> list[Action]:
        """Returns the actions that were decided since the last event."""
        actions = self._actions.copy()
        self._actions.clear()
        return actions

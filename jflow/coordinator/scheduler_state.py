"""What the scheduler of closures knows, and what can be asked of it."""

from __future__ import annotations

from jflow.coordinator.backlog import Backlog
from jflow.coordinator.bursts import Bursts
from jflow.coordinator.durations import Durations
from jflow.coordinator.events import WorkerIndex
from jflow.coordinator.kept import KeptResults
from jflow.coordinator.states import ClosureAttempt, OpenClosure, WorkerState


class SchedulerState:
    """The closures, attempts and workers of a scheduler.

    Args:
      n_workers: how many workers there are at first; they are down until `worker_up`.

    Attributes:
      has_error: whether a closure has failed since the last `clear`.
      kept: the results that workers have.
    """

    def __init__(self, n_workers: int = 0) -> None:
        self.has_error = False
        self.kept = KeptResults()
        self._workers = {worker: WorkerState() for worker in range(n_workers)}
        self._open: dict[int, OpenClosure] = {}
        self._backlog = Backlog()
        self._attempts: dict[int, ClosureAttempt] = {}
        self._expiries: list[tuple[float, int]] = []
        self._durations = Durations()
        self._bursts = Bursts(self._durations)
        self._n_attempts = 0
        self._n_added = 0
        self._n_ended = 0
        self._gone: dict[WorkerIndex, BaseException] = {}

    @property
    def is_idle(self) -> bool:
        """Whether every closure has ended and no attempt is running."""
        return not self._open and not self._attempts

    @property
    def n_queued(self) -> int:
        """How many closures wait for a worker or for their inputs."""
        return sum(not o.attempts for o in self._open.values())

    @property
    def n_open(self) -> int:
        """How many closures have not ended."""
        return len(self._open)

    @property
    def n_running(self) -> int:
        """How many attempts have not come back."""
        return len(self._attempts)

    def open_text(self) -> str:
        """What waits for all closures waits for, such as "for 5 closures, of which 2 run"."""
        return f"for {self.n_open} closures, of which {self.n_running} run"

    @property
    def n_ended(self) -> int:
        """A number of which all closures with lower numbers have ended."""
        while self._n_ended < self._n_added and self._n_ended not in self._open:
            self._n_ended += 1
        return self._n_ended

    def is_open(self, number: int) -> bool:
        """Whether a closure runs or waits."""
        return number in self._open

    def is_running(self, attempt: int) -> bool:
        """Whether an attempt has not come back."""
        return attempt in self._attempts

    def is_up(self, worker: WorkerIndex) -> bool:
        """Whether a worker takes closures."""
        state = self._workers.get(worker)
        return state is not None and state.is_up

    def is_free(self, worker: WorkerIndex) -> bool:
        """Whether all attempts of a worker have come back."""
        state = self._workers.get(worker)
        return state is None or not state.attempts

    def n_only_on(self, worker: WorkerIndex) -> int:
        """How many closures run on a worker and nowhere else."""
        state = self._workers.get(worker)
        mine = set() if state is None else state.attempts
        return sum(bool(one.attempts) and one.attempts <= mine for one in self._open.values())

    @property
    def workers(self) -> list[WorkerIndex]:
        """All workers, also those that are down."""
        return [worker for worker, state in self._workers.items() if not state.is_leaving]

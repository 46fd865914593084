"""What the scheduler keeps of a closure, an attempt and a worker."""

from __future__ import annotations

from dataclasses import dataclass, field

from jflow.coordinator.durations import AHEAD_S, MAX_AHEAD, SECOND_WITHIN_S
from jflow.coordinator.events import Closure, WorkerIndex


@dataclass(slots=True)
class OpenClosure:
    """A closure that has not ended.

    Its collections are immutable, so that those that are empty, as most are, are one object: the
    time of the garbage collector goes by the number of objects.
    """

    closure: Closure
    attempts: frozenset[int] = frozenset()
    missing: frozenset[int] = frozenset()
    dependents: tuple[int, ...] = ()
    n_attempts: int = 0
    is_alone: bool = False
    """Whether it has been in a burst that failed."""
    together: tuple[int, ...] = ()
    """The closures of its burst in exactly-once mode. They have one effect, so every later attempt
    is of all of them."""
    is_reissued: bool = False
    is_dropped: bool = False
    by_user: bool = False


@dataclass(slots=True)
class ClosureAttempt:
    """Closures that were given to a worker and have not come back."""

    number: int
    worker: WorkerIndex
    closures: tuple[int, ...]
    ordinal: int
    """That of `Dispatch`."""
    started: float
    expected: float
    n_queued: int
    """How many closures its worker had when it was given these, with these."""
    is_cancelled: bool = False


@dataclass
class WorkerState:
    is_up: bool = False
    is_leaving: bool = False
    load: float = 0.0
    """Seconds that its attempts are expected to take."""
    last_end: float = 0.0
    attempts: set[int] = field(default_factory=set)
    n_closures: int = 0
    """How many closures its attempts are of."""

    @property
    def has_room(self) -> bool:
        """Whether it is to be given a closure."""
        n = len(self.attempts)
        within_s = AHEAD_S if n > 1 else SECOND_WITHIN_S
        return self.is_up and self.load < within_s and n < MAX_AHEAD

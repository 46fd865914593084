"""What the scheduler keeps of a closure, an attempt and a worker."""

from __future__ import annotations

from dataclasses import dataclass, field

from jflow.coordinator.durations import AHEAD_S, MAX_AHEAD
from jflow.coordinator.events import Closure, WorkerIndex


@dataclass
class OpenClosure:
    """A closure that has not ended."""

    closure: Closure
    attempts: set[int] = field(default_factory=set)
    missing: set[int] = field(default_factory=set)
    dependents: list[int] = field(default_factory=list)
    n_attempts: int = 0
    is_alone: bool = False
    """Whether it has been in a burst that failed."""
    is_reissued: bool = False
    is_dropped: bool = False
    by_user: bool = False


@dataclass
class ClosureAttempt:
    """Closures that were given to a worker and have not come back."""

    number: int
    worker: WorkerIndex
    closures: tuple[int, ...]
    started: float
    expected: float
    is_cancelled: bool = False


@dataclass
class WorkerState:
    is_up: bool = False
    is_leaving: bool = False
    load: float = 0.0
    """Seconds that its attempts are expected to take."""
    last_end: float = 0.0
    attempts: set[int] = field(default_factory=set)

    @property
    def has_room(self) -> bool:
        """Whether it is to be given a closure."""
        return self.is_up and self.load < AHEAD_S and len(self.attempts) < MAX_AHEAD

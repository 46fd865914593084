"""What fails while closures count, and how often: the input of `tests.chaos.coordinator`."""

from __future__ import annotations

import random
from dataclasses import dataclass

WORKER_POINTS = (
    *("worker.before_run", "worker.after_run", "master.after_register", "master.after_run"),
    *("master.before_commit", "master.after_commit"),
)
"""Failpoints around acknowledgements that a worker comes to, as the master of its closures."""

PS_POINTS = (
    *("worker.before_run", "worker.after_run", "worker.after_stage"),
    *("worker.before_decision", "worker.after_decision"),
)
"""Those that a parameter server comes to."""

N_PASSES = {"master.after_register": 2}
"""How often a task comes to a point at least before it is idle."""

MOST_PASSES = 6
"""How often a task comes to any other point at most before it is killed there."""


@dataclass(frozen=True)
class Faults:
    """How often what fails.

    Attributes:
      worker_kills: workers that are killed, and started again at their address.
      ps_restarts: parameter servers, likewise.
      coordinator_kills: coordinators that are killed; another one goes on.
      coordinator_stops: coordinators that are stopped, replaced, and go on then.
      worker_points: workers that are killed at a failpoint, each of `WORKER_POINTS` in turn.
      ps_points: parameter servers, likewise at `PS_POINTS`.
    """

    worker_kills: int = 0
    ps_restarts: int = 0
    coordinator_kills: int = 0
    coordinator_stops: int = 0
    worker_points: int = 0
    ps_points: int = 0

    @property
    def chosen(self) -> dict[str, int]:
        """What fails at all, and how often."""
        return {name: times for name, times in vars(self).items() if times}

    @property
    def save_every(self) -> int:
        """After how many rounds of closures the coordinator saves.

        Where only workers fail, nothing is restored, and a save is one more thing to interrupt.
        """
        return 8 if self.chosen.keys() <= {"worker_kills", "worker_points"} else 1

    def in_any_order(self, rng: random.Random) -> list[str]:
        """The names of faults, one for each time."""
        names = [name for name, times in vars(self).items() for _ in range(times)]
        rng.shuffle(names)
        return names

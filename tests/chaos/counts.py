"""What closures that count have counted while tasks and coordinators failed, and what is wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly_once", "at_least_once"
NOT_YET = float("inf")


@dataclass
class CountOutcome:
    """What became of a run.

    Attributes:
      seed: what it depended on.
      effects: the mode of the closures.
      n_closures: how many of them a round has.
      faults: how often what has failed; for kills at failpoints, the points.
      n_rounds: rounds of closures that were joined.
      n_whole: those of them in which no parameter server was lost.
      n_checked: counters of parameter servers that were not lost in a round, so must be right.
      n_rerun: closures that ran again because their worker was lost.
      n_doubled: increments beyond those that were scheduled.
      seconds: how long it took.
      violations: what was wrong.
    """

    seed: int
    effects: str
    n_closures: int
    faults: Counter[str] = field(default_factory=Counter)
    n_rounds: int = 0
    n_whole: int = 0
    n_checked: int = 0
    n_rerun: int = 0
    n_doubled: int = 0
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)
    _losses: dict[int, list[list[float]]] = field(default_factory=dict, repr=False)
    _last: dict[str, Any] | None = field(default=None, repr=False)

    @property
    def n_faults(self) -> int:
        """How often something has failed."""
        return self.faults.total()

    def __str__(self) -> str:
        return (
            f"{self.effects}, {self.seconds:.0f} s, seed {self.seed}: {self.n_faults} faults, "
            f"{self.n_rounds * self.n_closures} closures in {self.n_rounds} rounds "
            f"({self.n_whole} without the loss of a parameter server), {self.n_rerun} run again, "
            f"{self.n_doubled} increments doubled, {len(self.violations)} violations"
        )

    def may_die(self, ps: int, now: float) -> None:
        """From now on a parameter server may be lost, until `has_died`."""
        self._losses.setdefault(ps, []).append([now, NOT_YET])

    def has_died(self, ps: int, now: float) -> None:
        """A parameter server has been lost since `may_die`."""
        self._losses[ps][-1][1] = now

    def replace_coordinator(self) -> None:
        """Another coordinator goes on; what the last one began counts for no round."""
        self._last = None

    def check(self, told: dict[str, Any]) -> None:
        """Checks what a round has counted.

        A counter is right if its parameter server lives through the round, whatever else is lost.
        What was lost before the round began is restored before the round reads its counter.
        """
        self.n_rounds += 1
        self.n_whole += told["is_whole"]
        self._check_rest(told)
        last = self._last or {"n_rerun": 0}
        self.n_rerun += told["n_rerun"] - last["n_rerun"]
        self._last = told
        for ps, (before, after) in enumerate(zip(told["before"], told["after"], strict=True)):
            gained = after - before
            is_right = told["is_whole"] or self._lives(ps, told["begun"], told["ended"])
            self.n_checked += is_right
            if is_right:
                self.n_doubled += max(gained - self.n_closures, 0)
            if is_right and gained < self.n_closures:
                self._violated(f"{self.n_closures - gained} increments were lost", ps, told)
            if self.effects == EXACTLY_ONCE and gained > self.n_closures:
                self._violated(f"{gained - self.n_closures} increments were doubled", ps, told)

    def _check_rest(self, told: dict[str, Any]) -> None:
        """Checks that nothing was counted after the last round was joined."""
        last = self._last
        if last is None:
            return
        for ps, (before, after) in enumerate(zip(last["after"], told["before"], strict=True)):
            if self._lives(ps, last["begun"], told["begun"]):
                if after < before:
                    self._violated(f"{before - after} increments were lost at rest", ps, told)
                if self.effects == EXACTLY_ONCE and after > before:
                    self._violated(f"{after - before} increments came late", ps, told)

    def _lives(self, ps: int, begun: float, ended: float) -> bool:
        return all(last < begun or ended < first for first, last in self._losses.get(ps, ()))

    def _violated(self, what: str, ps: int, told: dict[str, Any]) -> None:
        losses = self._losses.get(ps, [])[-3:]
        self.violations.append(f"{what} on ps {ps}: {told}, lost at {losses}")

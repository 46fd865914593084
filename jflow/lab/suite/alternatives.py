"""The alternatives that `explain` predicts for some operations, beside runs that pin them there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from jflow.lab.suite.measured import MeasuredResult, measurement_key
from jflow.lab.suite.scoring import reason_of

ALTERNATIVES = "alternatives"
WORKLOAD, STRATEGY = "moe", "heft_c"
"""Whose operations are moved, and from which placement: one that uses both devices."""


class Alternative(Protocol):
    """What a checker gives for one operation on one device; see `jflow.lab.measure`."""

    @property
    def operation(self) -> str: ...

    @property
    def device(self) -> str: ...

    @property
    def is_chosen(self) -> bool: ...

    @property
    def predicted(self) -> float: ...

    @property
    def staged(self) -> float: ...

    @property
    def times(self) -> tuple[float, ...]: ...

    @property
    def slowdown(self) -> float: ...


class AlternativesChecker(Protocol):
    """Moves operations that a seed chooses to each device that they may go to, and times steps."""

    def __call__(
        self, workload: str, strategy: str, n_devices: int, rounds: int, seed: int
    ) -> Sequence[Alternative]:
        """The alternatives, those that the strategy chose among them."""


def checked_alternatives(
    check: AlternativesChecker,
    n_devices: int,
    rounds: int,
    seed: int,
    earlier: Mapping[str, MeasuredResult],
) -> dict[str, MeasuredResult]:
    """The alternatives of operations of one workload, by keys for a file of results.

    Args:
      check: runs them.
      n_devices: of the cluster.
      rounds: measurements of each step.
      seed: chooses the operations.
      earlier: what is known by these keys; if it has them, nothing is run.
    """
    key = f"{measurement_key(WORKLOAD, n_devices, STRATEGY, rounds)}-{seed}"
    known = {k: each for k, each in earlier.items() if k.startswith(f"{key}-")}
    if known and not any(each.refused for each in known.values()):
        return known
    try:
        found = check(WORKLOAD, STRATEGY, n_devices, rounds, seed)
    except Exception as error:
        # As for strategies that fail: the other results are still to be kept.
        refused = MeasuredResult(WORKLOAD, n_devices, ALTERNATIVES, refused=reason_of(error))
        return {f"{key}-0": refused}
    return {f"{key}-{number}": _result(each, n_devices) for number, each in enumerate(found)}


def _result(found: Alternative, n_devices: int) -> MeasuredResult:
    label = f"{found.operation} on {found.device}" + (", chosen" if found.is_chosen else "")
    predictions = found.predicted, found.staged
    return MeasuredResult(
        WORKLOAD, n_devices, label, tuple(found.times), *predictions, slowdown=found.slowdown
    )

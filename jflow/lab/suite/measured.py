"""Steps that were really run, and how well the simulator and `explain` had predicted them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, groupby
from operator import attrgetter
from statistics import median
from typing import Any, Protocol

from jflow.compiler.schedule import PlaceFunction
from jflow.lab.measure import FUSED, SINGLE, CheckedAlternative
from jflow.lab.suite.contenders import Contender
from jflow.lab.suite.scoring import reason_of


@dataclass(frozen=True)
class StepTimes:
    """Measured and predicted step times of one placement.

    Attributes:
      times: seconds of a step in each round.
      predicted: seconds that the simulator says for single operations.
      staged: those that `explain` says: for the programs that the runtime makes of the operations,
        with what messages take of processors.
      is_correct: whether the step computed what it computes on one device.
      slowdown: how much slower the machine was than when it was calibrated.
    """

    times: Sequence[float]
    predicted: float
    staged: float
    is_correct: bool = True
    slowdown: float = 1.0


class Measurer(Protocol):
    """Runs the steps of a workload under several placements, in turns."""

    def __call__(
        self, workload: str, n_devices: int, placements: Sequence[PlaceFunction], rounds: int
    ) -> Sequence[StepTimes]:
        """Returns the times under each of the placements."""


@dataclass(frozen=True)
class MeasuredResult:
    """The measured step times of a workload under one strategy.

    Attributes:
      workload, n_devices, strategy: what was run, and how.
      times: seconds of a step in each round; none if it failed.
      predicted, staged, slowdown: as of `StepTimes`.
      refused: why there are no times, or why they do not count.
    """

    workload: str
    n_devices: int
    strategy: str
    times: Sequence[float] = ()
    predicted: float = 0.0
    staged: float = 0.0
    refused: str = ""
    slowdown: float = 1.0

    @property
    def plan(self) -> tuple[str, int]:
        """What was run: the workload and the number of devices, whose times are compared."""
        return self.workload, self.n_devices

    @property
    def seconds(self) -> float:
        """The median of the rounds."""
        return median(self.times)

    @property
    def error(self) -> float:
        """The error of the prediction, as a fraction of the measured time.

        The prediction is of the machine as it was calibrated; that it was slower or faster in the
        measurement, as a reference program tells, is no error of the prediction.
        """
        return abs(self.staged * self.slowdown - self.seconds) / self.seconds

    @property
    def noise(self) -> float:
        """Repeat noise of the median: half the distance between the quartiles, as its share."""
        ordered = sorted(self.times)
        n = len(ordered)
        return (ordered[(3 * n) // 4 - (n % 4 == 0)] - ordered[n // 4]) / 2 / self.seconds


@dataclass(frozen=True)
class Accuracy:
    """How well the plans of one workload were predicted.

    Attributes:
      workload, n_devices: which plans.
      n_plans: how many of them were run.
      error: median of the errors, see `MeasuredResult.error`.
      operation_error: the same for the prediction by single operations.
      plain_error: the same without the slowdown.
      slowdown: median of how much slower the machine was than when it was calibrated.
      tau: Kendall's rank correlation over pairs of plans that differ by more than their noise;
        None if there is no such pair.
      regret: measured time of the plan with the best prediction, divided by that of the best plan,
        less 1; of plans that are predicted equal the first one counts.
      noise: median repeat noise.
    """

    workload: str
    n_devices: int
    n_plans: int
    error: float
    operation_error: float
    plain_error: float
    slowdown: float
    tau: float | None
    regret: float
    noise: float


def measurement_key(workload: str, n_devices: int, strategy: str, rounds: int) -> str:
    """Returns the digest of a measurement's parameters, except for machine and code."""
    facts = json.dumps([workload, n_devices, strategy, rounds])
    return hashlib.sha256(facts.encode()).hexdigest()[:16]


def measured(
    measure: Measurer, workload: str, n_devices: int, contenders: Sequence[Contender], rounds: int
) -> list[MeasuredResult]:
    """Runs a workload under strategies; what fails or computes something else is refused."""
    placements = [_named(each) for each in contenders]
    try:
        steps = measure(workload, n_devices, placements, rounds)
    except Exception as error:
        # As in simulation: if one of them fails, the others are still to be compared.
        if len(contenders) > 1:
            alone = (measured(measure, workload, n_devices, [c], rounds) for c in contenders)
            return [result for each in alone for result in each]
        return [_failed(workload, n_devices, contenders[0], error)]
    results = []
    for contender, step in zip(contenders, steps, strict=True):
        wrong = "" if step.is_correct else "the step does not compute what one device computes"
        times = tuple(step.times)
        facts = (times, step.predicted, step.staged, wrong, step.slowdown)
        results.append(MeasuredResult(workload, n_devices, contender.name, *facts))
    return results


def _named(contender: Contender) -> PlaceFunction:
    """Returns the strategy under the name that it has in tables."""

    def place(*parts: Any) -> Any:
        return contender.place(*parts)

    place.__name__ = contender.name
    return place


def _failed(
    workload: str, n_devices: int, contender: Contender, error: Exception
) -> MeasuredResult:
    return MeasuredResult(workload, n_devices, contender.name, refused=reason_of(error))


def accuracy_of(results: Sequence[MeasuredResult]) -> Accuracy | None:
    """Returns how well the plans of one workload on one number of devices were predicted."""
    plans = [each for each in results if not each.refused and each.strategy != FUSED]
    if not plans:
        return None
    errors = [each.error for each in plans]
    single = [replace(each, staged=each.predicted).error for each in plans]
    plain = [replace(each, slowdown=1.0).error for each in plans]
    picked = min(plans, key=lambda each: each.staged)
    best = min(each.seconds for each in plans)
    return Accuracy(
        *(*plans[0].plan, len(plans)),
        *(median(errors), median(single), median(plain)),
        median(each.slowdown for each in plans),
        *(rank_correlation(plans), picked.seconds / best - 1),
        median(each.noise for each in plans),
    )


def accuracies(measured: Sequence[MeasuredResult]) -> list[Accuracy]:
    """Returns how well the plans of each workload and number of devices were predicted."""
    grouped = groupby(sorted(measured, key=attrgetter("plan")), key=attrgetter("plan"))
    every = (accuracy_of([*each]) for _, each in grouped)
    return [each for each in every if each is not None]


def rank_correlation(plans: Sequence[MeasuredResult]) -> float | None:
    """Kendall's tau over the pairs whose measured times differ by more than their noise."""
    agreeing = total = 0
    for one, other in combinations(plans, 2):
        difference = one.seconds - other.seconds
        if abs(difference) <= one.noise * one.seconds + other.noise * other.seconds:
            continue
        predicted = one.staged - other.staged
        total += 1
        agreeing += (predicted * difference > 0) - (predicted * difference < 0)
    return agreeing / total if total else None


def ratios(
    results: Iterable[MeasuredResult], strategy: str, other: str
) -> dict[tuple[str, int], float]:
    """The time of a strategy over that of another one, by workload and number of devices."""
    valid = [each for each in results if not each.refused]
    times = {(each.plan, each.strategy): each.seconds for each in valid}
    return {
        plan: seconds / times[plan, other]
        for (plan, what), seconds in times.items()
        if what == strategy and (plan, other) in times
    }


def losses_to_single(results: Iterable[MeasuredResult], strategy: str) -> list[MeasuredResult]:
    """The measurements in which a strategy was slower than a single device by more than noise."""
    valid = [each for each in results if not each.refused]
    alone = {each.plan: each for each in valid if each.strategy == SINGLE}
    losses = []
    for each in valid:
        other = alone.get(each.plan)
        if each.strategy == strategy and other is not None:
            noise = each.noise * each.seconds + other.noise * other.seconds
            if each.seconds - other.seconds > noise:
                losses.append(each)
    return losses


ALTERNATIVES = "alternatives"
WORKLOAD, STRATEGY = "moe", "heft_c"
"""Whose operations are moved, and from which placement: one that uses both devices."""


class AlternativesChecker(Protocol):
    """Moves operations that a seed chooses to each device that they may go to, and times steps."""

    def __call__(
        self, workload: str, strategy: str, n_devices: int, rounds: int, seed: int
    ) -> Sequence[CheckedAlternative]:
        """Returns the alternatives, those that the strategy chose among them."""


def checked_alternatives(
    check: AlternativesChecker,
    n_devices: int,
    rounds: int,
    seed: int,
    earlier: Mapping[str, MeasuredResult],
) -> dict[str, MeasuredResult]:
    """Returns the alternatives of operations of one workload, by keys for a file of results.

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
        alternatives = check(WORKLOAD, STRATEGY, n_devices, rounds, seed)
    except Exception as error:
        # As for strategies that fail: the other results are still to be kept.
        refused = MeasuredResult(WORKLOAD, n_devices, ALTERNATIVES, refused=reason_of(error))
        return {f"{key}-0": refused}
    return {f"{key}-{number}": _result(each, n_devices) for number, each in enumerate(alternatives)}


def _result(alternative: CheckedAlternative, n_devices: int) -> MeasuredResult:
    chosen = ", chosen" if alternative.is_chosen else ""
    return MeasuredResult(
        WORKLOAD,
        n_devices,
        f"{alternative.operation} on {alternative.device}{chosen}",
        alternative.times,
        alternative.predicted,
        alternative.staged,
        slowdown=alternative.slowdown,
    )

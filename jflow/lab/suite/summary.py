"""Statistics of results: what each strategy reached in a group, and what `auto` had to reach."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from jflow.lab.measure import SINGLE
from jflow.lab.suite.cases import CONTENTION, MEMORY, SMALL, SMALL_ONE_PORT, SURPRISES
from jflow.lab.suite.contenders import AUTO
from jflow.lab.suite.measured import MeasuredResult, losses_to_single
from jflow.lab.suite.scoring import CaseResult

ROUNDING = 1e-6
"""Share by which two makespans may differ that are the same."""

Yardstick = Callable[[CaseResult], float | None]
"""What makespans are divided by."""


def to_optimum(result: CaseResult) -> float | None:
    """Returns the proven optimum of a case."""
    return result.optimum


def to_best(result: CaseResult) -> float | None:
    """Returns the best schedule that is known for a case."""
    return result.best


@dataclass(frozen=True)
class StrategyFigures:
    """Statistics of one strategy over many cases, as ratios to a yardstick.

    Attributes:
      strategy: its name.
      n: how many cases have both its schedule and the yardstick.
      n_refused: in how many it gave no schedule.
      mean, p95, largest: of the ratios.
      share_best: the share of cases in which the ratio is 1.
      share_worse: the share of cases in which a single device is faster.
      speed_up: geometric mean of the time of a single device divided by its own.
      by: mean ratio for each value of a parameter.
      placing: median seconds that placing took.
      longest_placing: the most seconds that it took.
      reason: of the first refusal.
    """

    strategy: str
    n: int
    n_refused: int
    mean: float
    p95: float
    largest: float
    share_best: float
    share_worse: float
    speed_up: float
    by: Mapping[str, float]
    placing: float
    longest_placing: float
    reason: str = ""


def figures_of(
    results: Sequence[CaseResult],
    yardstick: Yardstick,
    by: Callable[[CaseResult], str] | None = None,
) -> list[StrategyFigures]:
    """The figures of each strategy, the best mean first; those without any schedule last."""
    names = dict.fromkeys(name for result in results for name in result.scores)
    figures = [_figures(name, results, yardstick, by) for name in names]
    return sorted(figures, key=lambda each: (each.mean, each.strategy))


def _figures(
    name: str,
    results: Sequence[CaseResult],
    yardstick: Yardstick,
    by: Callable[[CaseResult], str] | None,
) -> StrategyFigures:
    ratios: list[float] = []
    gains: list[float] = []
    grouped: dict[str, list[float]] = {}
    scores = [result.scores[name] for result in results if name in result.scores]
    for result in results:
        own, unit = result.makespan(name), yardstick(result)
        if own is None:
            continue
        alone = result.makespan(SINGLE)
        if alone is not None and own > 0:
            gains.append(alone / own)
        if unit:
            ratios.append(own / unit)
            if by:
                grouped.setdefault(by(result), []).append(own / unit)
    refused = [score for score in scores if score.makespan is None]
    placing = [score.placing for score in scores if score.makespan is not None]
    return StrategyFigures(
        *(name, len(ratios), len(refused)),
        *(_mean(ratios), quantile(ratios, 0.95), max(ratios, default=math.inf)),
        share_best=_fraction(ratio <= 1 + ROUNDING * 100 for ratio in ratios),
        share_worse=_fraction(gain < 1 - ROUNDING for gain in gains),
        speed_up=math.exp(fmean(map(math.log, gains))) if gains else math.nan,
        by={key: fmean(each) for key, each in grouped.items()},
        placing=median(placing) if placing else math.nan,
        longest_placing=max(placing, default=math.nan),
        reason=refused[0].refused if refused else "",
    )


@dataclass(frozen=True)
class Feasibility:
    """How often a strategy found a placement under memory limits, where there is one.

    Attributes:
      strategy: its name.
      fractions: by the memory limit, as a multiple of what operations keep.
      n: how many cases there are for each.
    """

    strategy: str
    fractions: Mapping[str, float]
    n: Mapping[str, int] = field(default_factory=dict)


def feasibility_of(results: Sequence[CaseResult]) -> list[Feasibility]:
    """The share of feasible cases in which each strategy found a placement, the largest first."""
    possible = [result for result in results if result.group == MEMORY and result.is_feasible]
    limits = sorted({float(result.parameters["memory"]) for result in possible}, reverse=True)
    figures = []
    for name in dict.fromkeys(name for result in possible for name in result.scores):
        cases = {
            limit: [r for r in possible if r.parameters["memory"] == limit and name in r.scores]
            for limit in limits
        }
        fractions = {
            f"{limit:g}": _fraction(r.makespan(name) is not None for r in each)
            for limit, each in cases.items()
        }
        figures.append(
            Feasibility(name, fractions, {f"{x:g}": len(each) for x, each in cases.items()})
        )
    return sorted(figures, key=lambda each: (-sum(each.fractions.values()), each.strategy))


@dataclass(frozen=True)
class Verdict:
    """How `auto` compares with a single device in a run.

    Attributes:
      n_simulated: cases with a schedule of `auto` and of a single device, and true costs.
      simulated_losses: those of them in which the single device is faster.
      n_measured: measurements of `auto` beside a single device.
      measured_losses: those of them in which the single device is faster by more than the noise.
    """

    n_simulated: int
    simulated_losses: Sequence[CaseResult]
    n_measured: int
    measured_losses: Sequence[MeasuredResult]

    @property
    def has_lost(self) -> bool:
        """Whether `auto` was slower than one device anywhere."""
        return bool(self.simulated_losses or self.measured_losses)


def verdict_of(results: Iterable[CaseResult], measured: Sequence[MeasuredResult]) -> Verdict:
    """Compares `auto` with a single device in all results whose costs strategies knew."""
    n, lost = 0, []
    for result in results:
        own, alone = result.makespan(AUTO), result.makespan(SINGLE)
        if not result.surprise and own is not None and alone is not None:
            n += 1
            if own > alone * (1 + ROUNDING):
                lost.append(result)
    valid = [each for each in measured if each.strategy == AUTO and not each.refused]
    return Verdict(n, lost, len(valid), losses_to_single(measured, AUTO))


def best_fixed(results: Sequence[CaseResult]) -> tuple[float, Mapping[str, str]] | None:
    """Ratios of the fixed strategy that is best on all other families.

    Returns:
      The mean ratio to the best schedule known, and the strategy chosen for each family; None if
      there are not two families. `auto` is not among the choices.
    """
    families = dict.fromkeys(result.workload for result in results)
    if len(families) < 2:
        return None
    ratios, chosen = [], {}
    for family in families:
        others = [result for result in results if result.workload != family]
        ranked = [
            each
            for each in figures_of(others, to_best)
            if each.strategy != AUTO and not each.n_refused
        ]
        if not ranked:
            return None
        chosen[family] = ranked[0].strategy
        for result in results:
            own, best = result.makespan(chosen[family]), result.best
            if result.workload == family and own is not None and best:
                ratios.append(own / best)
    return _mean(ratios), chosen


def of_group(results: Iterable[CaseResult], group: str) -> list[CaseResult]:
    """Returns the results of one group."""
    return [result for result in results if result.group == group]


def auto_figures(
    results: Iterable[CaseResult], group: str, yardstick: Yardstick
) -> StrategyFigures | None:
    """Returns the figures of `auto` in one group; None if it has none."""
    every = figures_of(of_group(results, group), yardstick)
    return next((each for each in every if each.strategy == AUTO and each.n), None)


def summary_line(results: Sequence[CaseResult], measured: Sequence[MeasuredResult]) -> str:
    """Returns the outcome of a run in one line."""
    verdict = verdict_of(results, measured)
    names = dict.fromkeys(name for result in results for name in result.scores)
    parts = [
        f"{len(results)} simulated cases, {len(measured)} measurements, {len(names)} strategies"
    ]
    for group, yardstick, words in (
        (SMALL, to_optimum, "of the optimum"),
        (SMALL_ONE_PORT, to_optimum, "of the optimum with one port"),
        (CONTENTION, to_best, "of the best known under contention"),
    ):
        if auto := auto_figures(results, group, yardstick):
            parts.append(f"auto {auto.mean:.3f} {words} (at most {auto.largest:.3f})")
    if verdict.n_simulated or verdict.n_measured:
        parts.append(
            f"auto slower than one device in {len(verdict.simulated_losses)} of "
            f"{verdict.n_simulated} simulated and, beyond noise, {len(verdict.measured_losses)} of "
            f"{verdict.n_measured} measured"
        )
    return "; ".join(parts)


def surprise_losses(results: Sequence[CaseResult], strategy: str, surprise: str) -> float:
    """The share of cases with one surprise in which a single device turned out to be faster."""
    compared = []
    for result in results:
        own, alone = result.makespan(strategy), result.makespan(SINGLE)
        is_meant = result.group == SURPRISES and result.surprise == surprise
        if is_meant and own is not None and alone is not None:
            compared.append(own > alone * (1 + ROUNDING))
    return _fraction(compared)


def quantile(values: Sequence[float], fraction: float) -> float:
    """Returns the smallest value that at least this fraction of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(fraction * len(ordered)) - 1, 0)] if ordered else math.inf


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else math.inf


def _fraction(values: Iterable[bool]) -> float:
    counted = list(values)
    return sum(counted) / len(counted) if counted else math.nan

"""What `auto` has to reach, what it did reach in a run, and a page's section about both."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jflow.errors import InvalidArgumentError
from jflow.lab.measure import FUSED, SINGLE
from jflow.lab.suite.cases import ADVERSARIAL, CONTENTION, MEMORY, SMALL, SMALL_ONE_PORT
from jflow.lab.suite.contenders import AUTO
from jflow.lab.suite.measured import Accuracy, MeasuredResult, accuracies, ratios
from jflow.lab.suite.scoring import CaseResult
from jflow.lab.suite.summary import (
    auto_figures,
    feasibility_of,
    of_group,
    to_best,
    to_optimum,
    verdict_of,
)
from jflow.lab.suite.tables import table

_PARALLEL = ("mlp", "inception", "moe")
"""The workloads that two devices are to make faster."""

_TINY = "digits"
"""The workload whose step computes for less time than a call to a server takes."""


@dataclass(frozen=True)
class Goal:
    """A goal, and whether a run reached it.

    Attributes:
      name: its number.
      about: what it is about.
      wanted: the figures that it asks for.
      found: the figures of the run.
      is_reached: whether these are as good.
    """

    name: str
    about: str
    wanted: str
    found: str
    is_reached: bool


def reached(cases: Sequence[CaseResult], measured: Sequence[MeasuredResult]) -> list[Goal]:
    """Returns the goals that the results of a run can judge."""
    return [
        *_optimal(cases),
        *_never_slower(cases, measured),
        *_predicted(measured),
        *_contention(cases),
        *_fast(measured),
        *_feasible(cases),
        *_adversarial(cases),
        *_fastest(measured),
    ]


def read_goals(path: Path) -> list[Goal]:
    """Reads the goals that are too slow to measure in every run; returns [] if the file is missing.

    Raises:
      InvalidArgumentError: if it is no list of goals.
    """
    try:
        return [Goal(**fields) for fields in json.loads(path.read_text())]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError) as error:
        raise InvalidArgumentError(
            f"{path} is not a list of goals ({type(error).__name__}: {error}); delete it, or write "
            "it anew"
        ) from error


def _optimal(cases: Sequence[CaseResult]) -> Iterator[Goal]:
    for group, what in ((SMALL, "without contention"), (SMALL_ONE_PORT, "one port")):
        if figures := auto_figures(cases, group, to_optimum):
            yield Goal(
                *("G1", f"ratio to the proven optimum, {what}", "mean ≤ 1.002, at most 1.05"),
                f"mean {figures.mean:.4f}, at most {figures.largest:.3f} of {figures.n}",
                figures.mean <= 1.002 and figures.largest <= 1.05,
            )


def _never_slower(
    cases: Sequence[CaseResult], measured: Sequence[MeasuredResult]
) -> Iterator[Goal]:
    verdict = verdict_of(cases, measured)
    lost, lost_measured = len(verdict.simulated_losses), len(verdict.measured_losses)
    if verdict.n_simulated:
        text = f"{lost} of {verdict.n_simulated}"
        yield Goal("G2", "slower than one device, simulated", "0", text, not lost)
    if verdict.n_measured:
        text = f"{lost_measured} of {verdict.n_measured}"
        about = "slower than one device by more than noise, measured"
        yield Goal("G2", about, "0", text, not lost_measured)


def _predicted(measured: Sequence[MeasuredResult]) -> Iterator[Goal]:
    """G4: each workload has to reach it, since a median of them would hide one that is far off."""
    every = accuracies(measured)
    if not every:
        return
    yield _of_each("error of predicted step times", 0.1, [(e, e.error) for e in every])
    if taus := [(each, each.tau) for each in every if each.tau is not None]:
        about = "rank correlation of plans that differ by more than noise"
        figures = ", ".join(f"{_plans(each)} {tau:.2f}" for each, tau in taus)
        yield Goal("G4", about, "each ≥ 0.9", figures, all(tau >= 0.9 for _, tau in taus))
    yield _of_each("regret of the best prediction", 0.03, [(e, e.regret) for e in every])


def _of_each(about: str, most: float, accuracies_of: Sequence[tuple[Accuracy, float]]) -> Goal:
    """A goal that the plans of each workload reach by a figure of at most `most`, or their noise.

    Where twice the repeat noise is larger than `most`, that is the limit, and stands beside it.
    """
    figures, is_reached = [], True
    for each, value in accuracies_of:
        limit = max(most, 2 * each.noise)
        allowance = f" (noise allows {limit:.0%})" if limit > most else ""
        figures.append(f"{_plans(each)} {value:.0%}{allowance}")
        is_reached = is_reached and value <= limit
    wanted = f"each ≤ {most:.0%}, or twice its noise"
    return Goal("G4", about, wanted, ", ".join(figures), is_reached)


def _plans(accuracy: Accuracy) -> str:
    """Returns the name of the plans of a workload: those on two devices go without their number."""
    name = accuracy.workload
    return name if accuracy.n_devices == 2 else f"{name} on {accuracy.n_devices}"


def _contention(cases: Sequence[CaseResult]) -> Iterator[Goal]:
    if figures := auto_figures(cases, CONTENTION, to_best):
        ratios = f"mean {figures.mean:.3f}, at most {figures.largest:.3f}"
        yield Goal(
            *("G5", "ratio to the best known, 300 operations under contention", "≤ 1.05, ≤ 1 s"),
            f"{ratios}; placing {figures.placing:.2f} s",
            figures.mean <= 1.05 and figures.placing <= 1,
        )


def _fast(measured: Sequence[MeasuredResult]) -> Iterator[Goal]:
    """G7: one device compared with the fused step, two devices with one."""
    fused = {name: ratio for (name, _), ratio in sorted(ratios(measured, SINGLE, FUSED).items())}
    tiny = fused.pop(_TINY, None)
    if fused:
        shown = ", ".join(f"{name} {ratio:.2f}" for name, ratio in fused.items())
        shown += f"; not judged: {_TINY} {tiny:.1f}" if tiny else ""
        yield Goal(
            *("G7", "time on one device, by that of the fused step", "≤ 1.2", shown),
            max(fused.values()) <= 1.2,
        )
    gains = {
        name: ratio
        for (name, n), ratio in sorted(ratios(measured, SINGLE, AUTO).items())
        if n == 2 and name in _PARALLEL
    }
    if gains:
        shown = ", ".join(f"{name} {ratio:.2f}" for name, ratio in gains.items())
        about = "time on one device, by that of `auto` on two"
        yield Goal("G7", about, "≥ 1.7", shown, min(gains.values()) >= 1.7)


def _feasible(cases: Sequence[CaseResult]) -> Iterator[Goal]:
    for each in feasibility_of(of_group(cases, MEMORY)):
        if each.strategy == AUTO:
            n = sum(each.n.values())
            total = sum(part * each.n[limit] for limit, part in each.fractions.items())
            about = "a placement under memory limits wherever there is one"
            yield Goal("G6", about, "all", f"{total:.0f} of {n}", round(total) == n)


def _adversarial(cases: Sequence[CaseResult]) -> Iterator[Goal]:
    if figures := auto_figures(cases, ADVERSARIAL, to_best):
        yield Goal(
            *("G9", "ratio to any strategy on graphs that a search found", "at most 1.25"),
            f"at most {figures.largest:.3f} of {figures.n}",
            figures.largest <= 1.25,
        )


def _fastest(measured: Sequence[MeasuredResult]) -> Iterator[Goal]:
    """G9 where nothing is certain by construction: plans that were really run."""
    plans = [each for each in measured if not each.refused and each.strategy != FUSED]
    least: dict[tuple[str, int], float] = {}
    for each in plans:
        least[each.plan] = min(each.seconds, least.get(each.plan, math.inf))
    fastest = {
        each.workload: each.seconds / least[each.plan] for each in plans if each.strategy == AUTO
    }
    if fastest:
        figures = ", ".join(f"{name} {ratio:.2f}" for name, ratio in sorted(fastest.items()))
        about = "ratio to the fastest strategy, measured"
        yield Goal("G9", about, "at most 1.25", figures, max(fastest.values()) <= 1.25)


REASONS = "## Why goals are missed"
"""The title of the section of the notes that has the reasons."""

_SECTION = re.compile(rf"^{REASONS}\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)


_QUICK = "a quick run, of fewer cases and a short calibration, does not judge it."
_UNSAID = f"no reason is given; NOTES.md of this folder can have one, below `{REASONS}`."


def goals_text(goals: Sequence[Goal], notes: str, *, is_quick: bool = False) -> str:
    """Returns the table of goals, in the order of their names, and the reasons from the notes."""
    ordered = sorted(goals, key=lambda goal: goal.name)
    no, unsaid = ("not judged", _QUICK) if is_quick else ("**no**", _UNSAID)
    body = [
        [goal.name, goal.about, goal.wanted, goal.found, "yes" if goal.is_reached else no]
        for goal in ordered
    ]
    head = ["", "goal", "wanted", "found", "reached"]
    missed = dict.fromkeys(goal.name for goal in ordered if not goal.is_reached)
    section = _SECTION.search(notes)
    reasons_of_notes = section[1].strip() if section else ""
    lines = [reasons_of_notes] if reasons_of_notes and missed else []
    lines += [f"- **{name}**: {unsaid}" for name in missed if f"**{name}" not in reasons_of_notes]
    reasons = "\n".join(["", f"#{REASONS}", "", *lines, ""]) if lines else ""
    return "## Goals of `auto`\n\n" + table(head, body) + reasons


def without_reasons(notes: str) -> str:
    """Returns the notes but for the reasons."""
    return _SECTION.sub("", notes)

"""The page of a comparison, in Markdown."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jflow.lab.measure import SINGLE
from jflow.lab.suite import goals
from jflow.lab.suite.cases import (
    ADVERSARIAL,
    CLUSTERS,
    CONTENTION,
    GROUPS,
    IMPORTED,
    MEMORY,
    MODELS,
    SMALL,
    SMALL_ONE_PORT,
    SURPRISES,
)
from jflow.lab.suite.contenders import AUTO
from jflow.lab.suite.goals import goals_text, without_reasons
from jflow.lab.suite.measured import MeasuredResult
from jflow.lab.suite.measured_page import alternatives_section, measured_section
from jflow.lab.suite.results import Origin
from jflow.lab.suite.scoring import CaseResult
from jflow.lab.suite.summary import (
    StrategyFigures,
    best_fixed,
    feasibility_of,
    figures_of,
    of_group,
    summary_line,
    surprise_losses,
    to_best,
    to_optimum,
)
from jflow.lab.suite.tables import duration, escaped, percent, ratio, strategy_name, table

_HEAD = """\
# Placement strategies, compared

{summary}.

On {date}, {machine}, load {load:.1f}; seed {seed}. The same again: `{command}`.

Every strategy gets the same graphs, costs and constraints; what it gives is checked, and run by the
same simulator. A ratio is a makespan divided by the optimum, or by the best schedule known. *Worse
than single* is the share of cases in which one device alone is faster. Mean, 95 % and largest are
of ratios; placing is the median time that the strategy took. A strategy that gives no schedule, or
a wrong one, is *refused*; its ratios are of the other cases.
"""

_TITLES = {
    SMALL: "Small graphs, beside the proven optimum",
    SMALL_ONE_PORT: "Tiny graphs under one port, beside the proven optimum",
    CONTENTION: "300 operations under contention",
    MEMORY: "Memory limits",
    SURPRISES: "Costs that are not as expected",
    CLUSTERS: "Simulated clusters",
    MODELS: "Models",
    ADVERSARIAL: "The worst graphs that a search finds",
    IMPORTED: "Imported graphs",
}

_ABOUT = {
    SMALL: """\
{least} to {most} operations, without contention. {n} cases; the optimum of {proven} is proven.""",
    SMALL_ONE_PORT: """\
{least} to {most} operations, with contention. {n} cases; the optimum of {proven} is proven.""",
    CONTENTION: """\
One port for each device: a device sends one tensor at a time, and receives one. {n} cases, beside
the best schedule that any strategy found.""",
    MEMORY: """\
20 operations; the memory of all devices together is a multiple of what operations keep. The share
of cases in which a strategy finds a placement, of those for which there is one ({feasible} of
{n}).""",
    SURPRISES: """\
Schedules are made for one problem and simulated on another. 60 operations, {n} cases. Mean ratio to
the schedule that turned out best; in parentheses the share of cases in which one device alone was
faster.""",
    CLUSTERS: """\
One port, CCR 1. Mean ratio to the best schedule known, and the longest that placing took. {n}
cases.""",
    MODELS: """\
Training steps by estimated costs, with their variables spread over the devices of a simulated
cluster, where they stay; *single* is one device for all that may move. Times are those of the
programs that the runtime makes of the operations, with what messages take of processors. {n} cases:
ratio to the best schedule known, and the longest that placing took. Beside each model, in
parentheses, how many operations its step has.""",
    ADVERSARIAL: """\
12 operations, 3 devices, one port. A search (simulated annealing, after PISA) looks for the graph
on which one strategy does worst beside the best of a few others. Each row is the graph found
against one strategy.""",
    IMPORTED: """\
Graphs in the JSON format of dnn-partitioning. {n} cases, mean ratio to the best schedule known.""",
}

_REASONS = 3
"""Reasons of refusals that the page has in full."""


@dataclass(frozen=True)
class Proofs:
    """Known optima that were proven again: how many, and what did not agree, a sentence each."""

    n: int
    disagreements: Sequence[str]


def page(
    origin: Origin,
    cases: Sequence[CaseResult],
    measured: Sequence[MeasuredResult],
    proofs: Proofs | None,
    pictures: Mapping[str, Path],
    alternatives: Sequence[MeasuredResult] = (),
    long_goals: Sequence[goals.Goal] = (),
    notes: str = "",
) -> str:
    """Returns the whole page.

    Args:
      origin: where the results come from.
      cases: what was simulated.
      measured: what was measured.
      proofs: of known optima, once more.
      pictures: the files of plots, by what they show.
      alternatives: what was measured of alternatives that `explain` predicts.
      long_goals: goals whose figures take longer than a run.
      notes: what people write about the results; it ends the page, but for the reasons why goals
        are missed.
    """
    command = "make bench-placement" + (" QUICK=1" if origin.quick else "")
    if origin.seed:
        command += f" SEED={origin.seed}"
    head = _HEAD.format(
        summary=summary_line(cases, measured),
        date=origin.date,
        machine=origin.machine,
        load=origin.load,
        seed=origin.seed,
        command=command,
    )
    every_goal = [*goals.reached(cases, measured), *long_goals]
    sections = [head, goals_text(every_goal, notes, is_quick=origin.quick)]
    if proofs is not None:
        agree = "all agree" if not proofs.disagreements else "; ".join(proofs.disagreements)
        sections.append(f"Of the known optima {proofs.n} were proven again: {agree}.\n")
    for group in GROUPS:
        if of_group(cases, group):
            sections.append(_section(group, cases, pictures))
    if measured:
        sections.append(measured_section(measured, pictures))
    if alternatives:
        sections.append(alternatives_section(alternatives))
    if refusals := [*_refusals(cases, [*measured, *alternatives])]:
        sections += ["## Refused\n", *refusals]
    if rest := without_reasons(notes):
        sections.append(rest)
    return "\n".join(sections)


def table_of(group: str, cases: Sequence[CaseResult]) -> str:
    """Returns the table of one group; "" if it has no results."""
    results = of_group(cases, group)
    return _TABLES[group](results) if results else ""


def _section(group: str, cases: Sequence[CaseResult], pictures: Mapping[str, Path]) -> str:
    results = of_group(cases, group)
    about = _ABOUT[group].format(
        n=len(results),
        least=min(result.n_operations for result in results),
        most=max(result.n_operations for result in results),
        proven=sum(result.optimum is not None for result in results),
        feasible=sum(bool(result.is_feasible) for result in results),
    )
    lines = [f"## {_TITLES[group]}", "", about, "", table_of(group, cases)]
    if group in pictures:
        lines.append(f"![{_TITLES[group]}]({pictures[group].name})\n")
    return "\n".join([*lines, *_fixed(group, results), *_partial(group, results)])


def _partial(group: str, results: Sequence[CaseResult]) -> Iterator[str]:
    """Yields which strategies ran in some cases only, so that their means are of fewer cases."""
    runs = Counter(name for result in results for name in result.scores)
    if few := [f"{strategy_name(name)} in {n}" for name, n in runs.items() if n < len(results)]:
        yield f"Of {len(results)} cases some strategies ran in fewer: {', '.join(few)}.\n"


def _fixed(group: str, results: Sequence[CaseResult]) -> Iterable[str]:
    if group != CONTENTION or (fixed := best_fixed(results)) is None:
        return
    mean, chosen = fixed
    names = sorted(set(chosen.values()))
    yield (
        "One strategy chosen for each family by its results on the other families "
        f"({', '.join(names)}) reaches {mean:.3f} in the mean.\n"
    )


def _refusals(cases: Sequence[CaseResult], measured: Sequence[MeasuredResult]) -> Iterator[str]:
    """Yields how often each strategy gave no schedule, and why, its first reasons in full."""
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    for result in cases:
        for name, score in result.scores.items():
            if score.refused and not score.is_infeasible:
                reasons[name][score.refused] += 1
    for each in measured:
        if each.refused:
            reasons[each.strategy][f"{each.refused} ({each.workload})"] += 1
    for name, counts in reasons.items():
        shown = [f"{escaped(reason)} ({n} times)" for reason, n in counts.most_common(_REASONS)]
        more = len(counts) - len(shown)
        others = f"; and {more} more reasons" if more else ""
        yield f"`{name}`, in {counts.total()} cases: {'; '.join(shown)}{others}\n"


# Tables ----------------------------------------------------------------------------------------


def _ratios(results: Sequence[CaseResult], to_known: bool = False) -> str:
    yardstick = to_best if to_known else to_optimum
    rows = figures_of(results, yardstick, by=_ccr)
    ccrs = sorted({_ccr(result) for result in results}, key=float)
    head = ["strategy", "mean", "95 %", "largest", "best" if to_known else "optimal"]
    head += ["worse than single", f"mean at CCR {' / '.join(ccrs)}", "placing", "refused"]
    body = []
    for row in rows:
        by = " / ".join(ratio(row.by.get(ccr, math.nan), 2) for ccr in ccrs)
        body.append([*_common(row), by, duration(row.placing), str(row.n_refused or "")])
    return table(head, body)


def _common(row: StrategyFigures) -> list[str]:
    return [
        *(strategy_name(row.strategy), ratio(row.mean), ratio(row.p95), ratio(row.largest)),
        *(percent(row.share_best), percent(row.share_worse)),
    ]


def _memory(results: Sequence[CaseResult]) -> str:
    rows = feasibility_of(results)
    if not rows:
        return "No strategy found a placement, and the solver proved none.\n"
    limits = [*rows[0].fractions]
    figures = {each.strategy: each for each in figures_of(results, to_best)}
    head = ["strategy", *(f"{limit} x (of {rows[0].n[limit]})" for limit in limits), "mean ratio"]
    return table(
        head,
        [
            [
                *(
                    strategy_name(row.strategy),
                    *(percent(row.fractions[limit]) for limit in limits),
                ),
                ratio(figures[row.strategy].mean),
            ]
            for row in rows
        ],
    )


def _surprises(results: Sequence[CaseResult]) -> str:
    kinds = [*dict.fromkeys(result.surprise for result in results)]
    rows = figures_of(results, to_best, by=lambda result: result.surprise)
    body = [
        [
            strategy_name(row.strategy),
            *(
                f"{ratio(row.by.get(kind, math.nan))} "
                f"({percent(surprise_losses(results, row.strategy, kind))})"
                for kind in kinds
            ),
        ]
        for row in rows
    ]
    return table(["strategy", *kinds], body)


def _clusters(results: Sequence[CaseResult]) -> str:
    sizes = sorted({result.n_devices for result in results})
    by_size = {
        size: {row.strategy: row for row in figures_of(_of_size(results, size), to_best)}
        for size in sizes
    }
    order = figures_of(results, to_best)
    body = []
    for row in order:
        cells = [strategy_name(row.strategy)]
        for size in sizes:
            figures = by_size[size].get(row.strategy)
            if figures is None or not figures.n:
                cells += ["-", "-"]
            else:
                cells += [ratio(figures.mean), duration(figures.longest_placing)]
        body.append(cells)
    return table(["strategy", *(text for n in sizes for text in (f"{n} devices", "placing"))], body)


def _models(results: Sequence[CaseResult]) -> str:
    sizes = sorted({result.n_devices for result in results})
    return "\n\n".join(f"On {n} devices:\n\n{_models_on(_of_size(results, n))}" for n in sizes)


def _models_on(results: Sequence[CaseResult]) -> str:
    heads = {each.workload: f"{each.workload} ({each.n_operations})" for each in results}
    return _by_workload(results, heads, 3, lambda row: row.longest_placing)


def _imported(results: Sequence[CaseResult]) -> str:
    heads = {each.workload: each.workload for each in results}
    return _by_workload(results, heads, 2, lambda row: row.placing)


def _by_workload(
    results: Sequence[CaseResult],
    heads: Mapping[str, str],
    digits: int,
    placing: Callable[[StrategyFigures], float],
) -> str:
    """Returns the mean ratios of each workload, whose columns have these heads."""
    rows = figures_of(results, to_best, by=lambda result: result.workload)
    body = [
        [
            strategy_name(row.strategy),
            *(ratio(row.by.get(name, math.nan), digits) for name in heads),
            *(ratio(row.mean), duration(placing(row))),
        ]
        for row in rows
    ]
    return table(["strategy", *heads.values(), "mean", "placing"], body)


def _adversarial(results: Sequence[CaseResult]) -> str:
    body = []
    for result in sorted(results, key=lambda each: -_own_ratio(each)):
        cells = [strategy_name(_against(result)), str(result.parameters["steps"])]
        cells += [ratio(_ratio_of(result, name)) for name in (_against(result), SINGLE, AUTO)]
        body.append(cells)
    return table(["against", "steps", "its ratio to the best", "single", "auto"], body)


def _against(result: CaseResult) -> str:
    return str(result.parameters["against"])


def _own_ratio(result: CaseResult) -> float:
    return _ratio_of(result, _against(result))


def _ratio_of(result: CaseResult, strategy: str) -> float:
    makespan, best = result.makespan(strategy), result.best
    return makespan / best if makespan is not None and best else math.nan


_TABLES: dict[str, Callable[[Sequence[CaseResult]], str]] = {
    SMALL: _ratios,
    SMALL_ONE_PORT: _ratios,
    CONTENTION: lambda results: _ratios(results, to_known=True),
    MEMORY: _memory,
    SURPRISES: _surprises,
    CLUSTERS: _clusters,
    MODELS: _models,
    ADVERSARIAL: _adversarial,
    IMPORTED: _imported,
}


def _ccr(result: CaseResult) -> str:
    return f"{float(result.parameters.get('ccr', math.nan)):g}"


def _of_size(results: Sequence[CaseResult], n_devices: int) -> list[CaseResult]:
    return [result for result in results if result.n_devices == n_devices]

"""`compare`: runs the benchmark of placement strategies and writes its results and page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jflow.base.cards import Card, Carded
from jflow.base.files import replace_file
from jflow.base.machine import n_cores
from jflow.base.progress import Progress
from jflow.compiler.schedule.strategies import STRATEGIES
from jflow.errors import InvalidArgumentError
from jflow.lab.families import FAMILIES
from jflow.lab.optima import KnownOptimum, check_optima, read_optima
from jflow.lab.suite import page, plots
from jflow.lab.suite.adversarial import adversarial_cases
from jflow.lab.suite.cases import (
    ADVERSARIAL,
    CLUSTERS,
    GROUPS,
    IMPORTED,
    MODELS,
    TIMED,
    TIMED_DEVICES,
    TIMED_FAMILIES,
    CaseRange,
    SuiteCase,
    imported_cases,
    model_cases,
    simulated_cases,
)
from jflow.lab.suite.contenders import contenders_of, fingerprints_of, fused_step
from jflow.lab.suite.goals import read_goals
from jflow.lab.suite.measured import (
    ALTERNATIVES,
    WORKLOAD,
    AlternativesChecker,
    MeasuredResult,
    Measurer,
    checked_alternatives,
    measured,
    measurement_key,
)
from jflow.lab.suite.page import Proofs
from jflow.lab.suite.results import (
    GroupResults,
    Origin,
    ResultFile,
    kept_beside,
    load,
    machine,
    read,
    resumable,
)
from jflow.lab.suite.scoring import (
    PROOF_SECONDS,
    QUICK_PROOF_SECONDS,
    CaseResult,
    result_of,
    skipped,
)
from jflow.lab.suite.summary import Verdict, summary_line, verdict_of
from jflow.lab.workloads import WORKLOADS

PAGE = "README.md"
NOTES = "NOTES.md"
"""What people write about the results; it is part of the page, if it is there."""

LONG_GOALS = "long-goals.json"
"""Goals whose figures take longer than a run, which the page has if the file is there."""

MEASURED = "measured"

_PATIENCE, _QUICK_PATIENCE = 120.0, 30.0
"""Seconds of placing that a strategy may be expected to take on a larger cluster."""

_ROUNDS, _QUICK_ROUNDS = 9, 7

_PROOFS, _QUICK_PROOFS = 20, 3
"""How many of the known optima are proven again."""

_QUICK_MODELS = 2
"""How many models a short run measures; of the strategies that ship, it measures these."""

_QUICK_STRATEGIES = ("single", "round_robin", "heft", "etf_c", "auto")


@dataclass(frozen=True)
class SuiteOptions:
    """What to compare, and on what.

    Attributes:
      strategies: names, "all", "module:function" or functions.
      workloads: names of graph families and of models, "timed", "adversarial", "imported", or "all"
        for everything that there is.
      devices: numbers of devices.
      quick: whether to run for two minutes, not twenty.
      resume: whether to take what earlier results in the same folder have, and to keep those of
        workloads, strategies and numbers of devices that this run does not name.
      seed: of everything random.
      imported: a folder of graphs in the JSON format of dnn-partitioning.
      optima: a file of optima that are known; some of its graphs are taken as small cases.
      progress: whether to show progress bars.
      simulates: whether to compare simulated steps too, not only those that are run for real.
    """

    strategies: Sequence[str | Callable[..., Any]] = ("all",)
    workloads: Sequence[str] = ("all",)
    devices: Sequence[int] = (2, 4, 8)
    quick: bool = False
    resume: bool = False
    seed: int = 0
    imported: Path | None = None
    optima: Path | None = None
    progress: bool = False
    simulates: bool = True


@dataclass(frozen=True)
class Measuring:
    """The functions that run workloads on real processes.

    Attributes:
      measure: runs one under several placements.
      workloads: the names of those that are run.
      check: runs the alternatives that `explain` predicts; None to leave them out.
    """

    measure: Measurer
    workloads: Sequence[str] = tuple(WORKLOADS)
    check: AlternativesChecker | None = None


@dataclass(frozen=True)
class Comparison(Carded):
    """The outcome of a run.

    Attributes:
      origin: where the results come from.
      cases: what was simulated.
      measured: what was measured.
      proofs: what was found when some of the known optima were proven again.
      alternatives: what was measured of alternatives that `explain` predicts.
    """

    origin: Origin
    cases: Sequence[CaseResult]
    measured: Sequence[MeasuredResult]
    proofs: Proofs | None = None
    alternatives: Sequence[MeasuredResult] = ()

    @property
    def summary(self) -> str:
        """The outcome in one line."""
        return summary_line(self.cases, self.measured)

    @property
    def verdict(self) -> Verdict:
        """How `auto` compares with a single device."""
        return verdict_of(self.cases, self.measured)

    def __repr__(self) -> str:
        return f"<jflow.lab.Comparison {self.summary}>"

    def _card(self) -> Card:
        names = sorted({name for case in self.cases for name in case.scores})
        facts = (
            ("summary", self.summary),
            ("cases", f"{len(self.cases):,} simulated, {len(self.measured):,} measured"),
            ("strategies", ", ".join(names)),
            ("taken", f"on {self.origin.date}, {self.origin.machine}"),
        )
        note = "table(group) returns the table of a group in Markdown."
        return Card("lab.Comparison", "", facts, note=note)

    def table(self, group: str) -> str:
        """Returns the table of one group in Markdown, such as "small" or "contention"."""
        return page.table_of(group, self.cases)


def compare(
    options: SuiteOptions, output: Path | None = None, *, measuring: Measuring | None = None
) -> Comparison:
    """Compares placement strategies on the same problems, costs and network.

    A strategy that raises, or whose answer breaks a constraint, is refused in its case, with the
    reason, and the run goes on.

    Args:
      options: what to compare, and on what.
      output: the folder for results, page and plots, which is made; None to write nothing.
      measuring: how to run workloads for real; None to simulate only.

    Raises:
      InvalidArgumentError: if a strategy, workload or number of devices does not exist, a file of
        earlier results is broken, or there is nothing to resume.
    """
    return _Run(options, output, measuring).compare_all()


class _Run:
    def __init__(
        self, options: SuiteOptions, output: Path | None, measuring: Measuring | None
    ) -> None:
        self.options, self.output, self.measuring = options, output, measuring
        self.contenders = contenders_of(options.strategies)
        self.fingerprints = fingerprints_of(self.contenders)
        self.workloads = _workloads(options)
        self.devices = _devices(options.devices)
        self.known = _known(options.optima)
        self.optima = {each.digest: each.makespan for each in self.known if each.is_proven}
        self.origin = Origin(
            *(datetime.now(UTC).date().isoformat(), machine(), options.seed, options.quick),
            *({each.name: each.fingerprint for each in self.contenders}, load()),
        )
        if options.resume and output is None:
            raise InvalidArgumentError("to resume a run, say in which folder its results are")
        self.earlier = {group: self._earlier(group) for group in (*GROUPS, MEASURED, ALTERNATIVES)}
        self.earlier_results = {
            group: kept_beside(e, self.origin) for group, e in self.earlier.items()
        }
        for earlier in self.earlier.values():  # whose strategies this run need not name
            # What stays of a strategy is by its present source: `resumable` drops all else.
            marks = {
                name: self.fingerprints.get(name, m)
                for name, m in earlier.origin.strategies.items()
            }
            marks.update(self.origin.strategies)
            most = max(self.origin.load, earlier.origin.load)
            self.origin = replace(self.origin, strategies=marks, load=most)
        self.long_goals = read_goals(output / LONG_GOALS) if output is not None else []
        if output is not None:
            output.mkdir(parents=True, exist_ok=True)

    def compare_all(self) -> Comparison:
        by_group: dict[str, list[SuiteCase]] = {}
        for case in self._cases():
            by_group.setdefault(case.group, []).append(case)
        results = [result for g in GROUPS for result in self._simulate(g, by_group.get(g, ()))]
        comparison = Comparison(
            self.origin, results, self._measure(), self._proofs(), self._alternatives()
        )
        if self.output is not None:
            pictures = plots.draw(comparison.cases, comparison.measured, self.output)
            notes = self.output / NOTES
            text = page.page(
                *(comparison.origin, comparison.cases, comparison.measured),
                *(comparison.proofs, pictures, comparison.alternatives),
                long_goals=self.long_goals,
                notes=notes.read_text() if notes.is_file() else "",
            )
            replace_file(self.output / PAGE, text)
        return comparison

    def _cases(self) -> Iterator[SuiteCase]:
        options = self.options
        if not options.simulates:
            return
        families = [name for name in FAMILIES if name in self.workloads]
        if families:
            scope = CaseRange(families, self.devices, options.quick, options.seed, self.known)
            yield from simulated_cases(scope)
        if models := [name for name in WORKLOADS if name in self.workloads]:
            yield from model_cases(models, options.quick)
        if ADVERSARIAL in self.workloads:
            yield from adversarial_cases(self.contenders, options.seed, options.quick)
        if IMPORTED in self.workloads and options.imported is not None:
            yield from imported_cases(options.imported)

    def _simulate(self, group: str, cases: Sequence[SuiteCase]) -> list[CaseResult]:
        """Results of simulated cases, and earlier ones that stay in the file."""
        others = {**self.earlier_results[group].cases}
        if not cases:
            return [*others.values()]
        earlier, quick = self.earlier[group].cases, self.options.quick
        patience = _QUICK_PATIENCE if quick else _PATIENCE
        results: list[CaseResult] = []
        with self._progress(len(cases), group) as bar, self._file(group) as file:
            for case in cases:
                result = result_of(
                    *(case, self.contenders),
                    known=earlier.get(case.key),
                    skipping=skipped(case, results, patience)
                    if group in (CLUSTERS, MODELS)
                    else {},
                    optima=self.optima,
                    proof_seconds=QUICK_PROOF_SECONDS if quick else PROOF_SECONDS,
                )
                results.append(result)
                file.add_case(case.key, result)
                others.pop(case.key, None)
                if bar is not None:
                    bar.advance(f"{case.workload}, {case.n_devices} devices")
        return [*results, *others.values()]

    def _measure(self) -> list[MeasuredResult]:
        """Measured results, and earlier ones that stay in the file."""
        others = {**self.earlier_results[MEASURED].measured}
        if self.measuring is None or not (plans := self._plans(self.measuring)):
            return [*others.values()]
        rounds = _QUICK_ROUNDS if self.options.quick else _ROUNDS
        contenders = self.contenders
        if self.options.quick:
            left_out = {*STRATEGIES} - {*_QUICK_STRATEGIES}
            contenders = [each for each in contenders if each.name not in left_out]
        earlier, every = self.earlier[MEASURED].measured, []
        with self._progress(len(plans), MEASURED) as bar, self._file(MEASURED) as file:
            for plan in plans:
                taking = [*contenders]
                if plan[0] in WORKLOADS and WORKLOADS[plan[0]].is_one_program:
                    taking.append(fused_step())
                keys = {c.name: measurement_key(*plan, c.name, rounds) for c in taking}
                results = [earlier[key] for key in keys.values() if key in earlier]
                # Times of one plan are compared with each other, so they are taken in one go.
                if len(results) < len(keys):
                    results = measured(self.measuring.measure, *plan, taking, rounds)
                    for key in [k for k, each in others.items() if each.plan == plan]:
                        del others[key]
                        file.drop_measured(key)
                by_key = {keys[result.strategy]: result for result in results}
                file.add_measured(by_key)
                for key in by_key:
                    others.pop(key, None)
                every += results
                if bar is not None:
                    bar.advance(f"{plan[0]}, {plan[1]} devices")
        return [*every, *others.values()]

    def _plans(self, measuring: Measuring) -> list[tuple[str, int]]:
        """Returns the workloads that are run for real, and on how many devices."""
        few = [n for n in self.devices if n <= n_cores()] or [min(self.devices)]
        named = self.options.workloads
        names = [
            name
            for name in measuring.workloads
            if name in named or (name in self.workloads and not _compiles_for_minutes(name))
        ]
        if self.options.quick:
            names = names[:_QUICK_MODELS]
        plans = [(name, n_devices) for n_devices in few for name in names]
        if TIMED in self.workloads and not self.options.quick:
            plans += [(f"{TIMED} {family}", TIMED_DEVICES) for family in TIMED_FAMILIES]
        return plans

    def _alternatives(self) -> Sequence[MeasuredResult]:
        measuring, options = self.measuring, self.options
        others = self.earlier_results[ALTERNATIVES].measured
        is_wanted = WORKLOAD in self.workloads and not options.quick
        if measuring is None or measuring.check is None or not is_wanted:
            return [*others.values()]
        results = checked_alternatives(
            *(measuring.check, min(self.devices), _ROUNDS, options.seed),
            self.earlier[ALTERNATIVES].measured,
        )
        with self._file(ALTERNATIVES) as file:
            file.add_measured(results)
        return [*{**others, **results}.values()]

    def _proofs(self) -> Proofs | None:
        options = self.options
        if options.optima is None or not any(name in FAMILIES for name in self.workloads):
            return None
        n = min(_QUICK_PROOFS if options.quick else _PROOFS, len(self.optima))
        return Proofs(n, check_optima(options.optima, n, options.seed, seconds=PROOF_SECONDS))

    def _earlier(self, group: str) -> GroupResults:
        results = read(self._path(group)) if self.options.resume and self.output else None
        if results is None:
            return GroupResults(self.origin)
        return resumable(results, self.origin, self.fingerprints)

    def _path(self, group: str) -> Path:
        assert self.output is not None
        return self.output / f"{group}.json"

    def _file(self, group: str) -> ResultFile:
        path = self._path(group) if self.output else None
        return ResultFile(path, self.origin, self.earlier_results[group])

    def _progress(self, total: int, label: str) -> AbstractContextManager[Progress | None]:
        return Progress(total, label, "case") if self.options.progress else nullcontext()


def _known(path: Path | None) -> list[KnownOptimum]:
    """Returns the optima of a file."""
    if path is None:
        return []
    try:
        return read_optima(path)
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidArgumentError(
            f"{path} is not a file of optima ({type(error).__name__}: {error}); "
            "`make placement-optima` writes one"
        ) from error


def _compiles_for_minutes(name: str) -> bool:
    return name in WORKLOADS and WORKLOADS[name].compiles_for_minutes


def _workloads(options: SuiteOptions) -> list[str]:
    """Returns the workloads that are asked for, "all" spelled out."""
    known = [*FAMILIES, *WORKLOADS, TIMED, ADVERSARIAL]
    if options.imported is not None:
        known.append(IMPORTED)
    names: list[str] = []
    for name in options.workloads:
        if name == IMPORTED and options.imported is None:
            raise InvalidArgumentError("imported graphs need the folder that they are in")
        if name not in (*known, "all"):
            raise InvalidArgumentError(
                f"there is no workload {name!r}; there are all, {', '.join(known)}"
            )
        names += known if name == "all" else [name]
    if not names:
        raise InvalidArgumentError(f"expected workloads, such as all or {known[0]}, got none")
    return list(dict.fromkeys(names))


def _devices(devices: Sequence[int]) -> list[int]:
    """Returns the numbers of devices, the smallest first."""
    if not devices or min(devices) < 2:
        shown = ", ".join(map(str, devices)) or "none"
        raise InvalidArgumentError(f"expected numbers of devices of 2 or more, got {shown}")
    return sorted(set(devices))

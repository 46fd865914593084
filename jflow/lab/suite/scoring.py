"""Runs strategies on a case: what each gives, how long it takes, and why one gives nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from jflow.compiler.schedule import Problem, Schedule, lower_bound, predicted_seconds, scheduled
from jflow.compiler.schedule.exact import optimal
from jflow.compiler.schedule.exhaustive import exhaustive_optimum
from jflow.compiler.schedule.sends import sends_of
from jflow.errors import OpError, ResourceExhaustedError
from jflow.lab.optima import digest_of
from jflow.lab.suite.cases import MEMORY, SMALL, SMALL_ONE_PORT, Scalar, SuiteCase
from jflow.lab.suite.contenders import Contender

PROOF_SECONDS, QUICK_PROOF_SECONDS = 10.0, 2.0
"""How long the exact solver may take for an optimum that is not known yet."""

_MOST_FOR_A_PROOF = 20
_NODES = 200_000
"""Of the search for an optimum under one port: about two seconds."""


@dataclass(frozen=True)
class Score:
    """The score of one strategy in one case.

    Attributes:
      makespan: seconds that a step takes by its schedule, as `predicted_seconds` says, which is
        what `auto` chooses by; None if it gave none.
      placing: seconds of this process that it took to give it.
      n_bytes: what its schedule sends between devices.
      refused: why there is no schedule: the strategy's own error, or what is wrong with its answer.
      is_infeasible: whether it found no placement that holds the constraints, and said so.
      is_skipped: whether it was not run, because it would have taken too long.
    """

    makespan: float | None
    placing: float
    n_bytes: float = 0.0
    refused: str = ""
    is_infeasible: bool = False
    is_skipped: bool = False


@dataclass(frozen=True)
class CaseResult:
    """The scores of all strategies in one case.

    Attributes:
      group, workload, n_devices, parameters, surprise: see `SuiteCase`.
      n_operations: of the graph.
      bound: seconds that every schedule takes at least.
      optimum: seconds of the best schedule, where it is proven.
      is_feasible: whether a placement that holds the constraints is known to exist; None if neither
        that nor the contrary is known.
      scores: by the name of the strategy.
    """

    group: str
    workload: str
    n_devices: int
    parameters: Mapping[str, Scalar]
    surprise: str
    n_operations: int
    bound: float
    optimum: float | None
    is_feasible: bool | None
    scores: Mapping[str, Score] = field(default_factory=dict)

    @property
    def best(self) -> float | None:
        """The shortest makespan that is known: of all strategies, or the optimum."""
        known = [s.makespan for s in self.scores.values() if s.makespan is not None]
        if self.optimum is not None:
            known.append(self.optimum)
        return min(known, default=None)

    def makespan(self, strategy: str) -> float | None:
        """Returns the makespan of a strategy; None if it gave no schedule."""
        score = self.scores.get(strategy)
        return score.makespan if score else None


Optima = Mapping[str, float]
"""Proven optima in seconds, by `digest_of`."""


def result_of(
    case: SuiteCase,
    contenders: Iterable[Contender],
    *,
    known: CaseResult | None = None,
    skipping: Mapping[str, Score],
    optima: Optima,
    proof_seconds: float = PROOF_SECONDS,
    clock: Callable[[], float] = time.process_time,
) -> CaseResult:
    """Runs all strategies on a case and scores their schedules.

    Args:
      case: the case.
      contenders: the strategies.
      known: an earlier result of the same case, whose scores are taken as they are, but those of
        strategies that were not run.
      skipping: scores of strategies that are not to be run.
      optima: what is proven already.
      proof_seconds: how long to try to prove the optimum of a small case.
      clock: tells the time of this process in seconds.
    """
    earlier = known.scores if known else {}
    scores = {**skipping, **{k: score for k, score in earlier.items() if not score.is_skipped}}
    contenders = [each for each in contenders if each.name not in scores]
    if known and not contenders:
        return known
    problem = case.build()
    actual = case.actual(problem)
    best: tuple[float, Schedule] | None = None
    for contender in contenders:
        score, schedule = _score(contender, problem, actual, clock)
        scores[contender.name] = score
        if schedule and score.makespan is not None and (not best or score.makespan < best[0]):
            best = (score.makespan, schedule)
    if known:
        optimum, is_feasible = known.optimum, known.is_feasible
    else:
        optimum, is_feasible = _proof(case, problem, best and best[1], optima, proof_seconds)
    return CaseResult(
        *(case.group, case.workload, case.n_devices, case.parameters, case.surprise),
        *(len(problem.graph), lower_bound(actual), optimum, is_feasible, scores),
    )


def skipped(case: SuiteCase, before: Iterable[CaseResult], patience: float) -> dict[str, Score]:
    """Scores of strategies that would take too long, by what they took with fewer devices.

    Args:
      case: what is to come.
      before: results so far, of clusters that are not larger.
      patience: the most seconds that placing may be expected to take, in proportion to the number
        of devices.
    """
    scores: dict[str, Score] = {}
    for result in before:
        for name, score in result.scores.items():
            expected = score.placing * case.n_devices / result.n_devices
            if score.is_skipped:
                scores[name] = score
            elif expected > patience and name not in scores:
                scores[name] = Score(
                    None,
                    0.0,
                    refused=f"not tried: it took {score.placing:.0f} s with {result.n_devices} "
                    "devices",
                    is_skipped=True,
                )
    return scores


def _score(
    contender: Contender, problem: Problem, actual: Problem, clock: Callable[[], float]
) -> tuple[Score, Schedule | None]:
    begin = clock()
    try:
        schedule = scheduled(problem, contender.place)
    except Exception as error:
        # A strategy of a user's may raise anything, and the others are still to be compared.
        placing, infeasible = clock() - begin, isinstance(error, ResourceExhaustedError)
        return Score(None, placing, 0.0, reason_of(error), infeasible), None
    placing = clock() - begin
    sent = float(actual.graph.sizes[sends_of(actual, schedule).edge].sum())
    return Score(predicted_seconds(actual, schedule), placing, sent), schedule


def reason_of(error: Exception) -> str:
    """Returns an exception as one line for a table."""
    text = error.message if isinstance(error, OpError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:300]


def _proof(
    case: SuiteCase,
    problem: Problem,
    upper: Schedule | None,
    optima: Optima,
    seconds: float,
) -> tuple[float | None, bool | None]:
    """Returns the proven optimum, and whether there is a placement at all."""
    is_feasible = True if upper else None
    if case.surprise or len(problem.graph) > _MOST_FOR_A_PROOF:
        return None, is_feasible
    if (known := optima.get(digest_of(problem))) is not None:
        return known, True
    if case.group == SMALL_ONE_PORT:
        best = exhaustive_optimum(problem, upper, nodes=_NODES)
        return (best.makespan if best.is_proven else None), True
    if case.group == SMALL or (case.group == MEMORY and not upper):
        try:
            optimum = optimal(problem, upper=upper, seconds=seconds)
        except ResourceExhaustedError as error:
            return None, False if "exists" in error.message else None
        # The solver knows no contention: elsewhere it tells only that there is a placement.
        return (optimum.makespan if case.group == SMALL and optimum.is_proven else None), True
    return None, is_feasible

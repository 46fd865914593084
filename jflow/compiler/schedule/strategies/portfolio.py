"""`auto`: tries many strategies and takes the best one by simulation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from jflow.compiler.schedule.anneal import improved
from jflow.compiler.schedule.compact import can_compile
from jflow.compiler.schedule.cut import n_runs
from jflow.compiler.schedule.exact import Optimum, optimal
from jflow.compiler.schedule.exhaustive import exhaustive_optimum
from jflow.compiler.schedule.problem import Problem, capacity_of, lower_bound
from jflow.compiler.schedule.schedule import PlaceFunction, Schedule, name_of, scheduled, strategy
from jflow.compiler.schedule.simulate import makespan
from jflow.compiler.schedule.stage_run import is_makespan, predicted_seconds
from jflow.compiler.schedule.strategies.contiguous import m_topo, min_cut_runs
from jflow.compiler.schedule.strategies.coplacing import coplaced
from jflow.compiler.schedule.strategies.grouping import grouped
from jflow.compiler.schedule.strategies.list_scheduling import (
    cpop,
    earliest_finish,
    etf,
    etf_c,
    heft,
    heft_c,
    peft,
)
from jflow.compiler.schedule.strategies.memory import fitted
from jflow.compiler.schedule.strategies.metis import can_cut, metis
from jflow.compiler.schedule.strategies.sct import m_sct
from jflow.compiler.schedule.strategies.simple import (
    greedy_load,
    greedy_lpt,
    random,
    round_robin,
    single,
)
from jflow.compiler.schedule.strategies.stage_search import improved_in_stages
from jflow.errors import OpError, ResourceExhaustedError

MARGIN = 0.1
"""`auto` leaves a single device for a predicted gain of more than this fraction of its time.

That is where costs are estimates: errors of single operations are taken for independent, so those
of a gain that is larger have little to do with them. Also, a gain has to be left at the worst
that costs may be off (`Costs.at_worst`). Where they are exact, every gain counts.
"""

_MOST_CHECKED = 5
"""How many candidates, of the best, are compared at the worst."""

_STARTS = (0.05, 0.15, 0.1, 0.2, 0.1)
"""The temperatures of searches from the best candidates, as shares of their times.

Where transfers take long, a small graph's good schedules are far from each other. More, shorter
searches find them more often than a few long ones. Large graphs, of which fewer moves can be tried,
are searched from the best candidate only, at a temperature of the time of one operation or so:
hotter searches leave it and do not come back.
"""

_SMALL = 50
_OPERATION_HEAT = 0.6

_MOST_MOVES = 20_000
_MOVED_OPERATIONS = 450_000
"""Moves times operations; a moved operation takes about 1.5 µs, or 0.1 µs where it is compiled."""

_COMPILED_SPEED = 12
_LEAST_MOVES = 200

_STAGED_OPERATIONS = 300_000
"""Moves times operations of a search in stages; a moved operation takes 3 to 5 µs."""

_EVALUATIONS = 100_000
"""Operations times devices that candidates may look at together; each takes 4 to 8 µs."""

_MOST_GROUPS, _GROUP_CHOICES = 2_000, 64_000
"""Groups of a large graph, and groups times devices."""

_EXACT_OPERATIONS = 12
"""Graphs of at most as many operations are also searched exhaustively, and solved by HiGHS."""

_EXHAUSTIVE_NODES, _SOLVER_NODES = 30_000, 200
"""Each takes about 0.3 s."""

_LISTS: tuple[PlaceFunction, ...] = (etf_c, heft_c, earliest_finish, heft, etf, cpop)
_BASELINES: tuple[PlaceFunction, ...] = (m_topo, greedy_lpt, greedy_load, round_robin, random)


@dataclass(frozen=True)
class PortfolioResult:
    """The schedule that `auto` chose, and the predictions that it chose by.

    Attributes:
      schedule: the choice.
      strategy: the strategy that it is of.
      predicted: the step of each candidate in seconds (`predicted_seconds`), by the name of its
        strategy.
      bound: what every schedule takes at least, in seconds.
    """

    schedule: Schedule
    strategy: str
    predicted: Mapping[str, float]
    bound: float


@strategy
def auto(problem: Problem) -> Schedule:
    """Returns the schedule of the portfolio with the least predicted time, improved by search."""
    return choose(problem).schedule


def choose(
    problem: Problem,
    candidates: Sequence[PlaceFunction] | None = None,
    *,
    moves: int | None = None,
    margin: float | None = None,
    exact: bool = True,
) -> PortfolioResult:
    """Runs the portfolio and returns its choice.

    Args:
      problem: what to schedule.
      candidates: strategies, each of which is tried as it is and with coplacing; by default those
        that ship, as many as the size of the problem lets. A single device is always a candidate.
      moves: how many changes of the best candidates to try afterwards; fewer for larger graphs by
        default, so that the search takes about half a second.
      margin: the gain over a single device for which it is left, as a fraction of its time; by
        default `MARGIN` if costs are estimates, else 0.
      exact: whether graphs of at most 12 operations are also solved by exact methods, as far as
        half a second lets them, which proves a bound.

    Raises:
      ResourceExhaustedError: if no strategy finds a schedule under the memory limits.
    """
    portfolio = _Portfolio(problem)
    portfolio.add(single)
    if candidates is None:
        tried = _candidates(problem)
    else:
        tried = iter((*candidates, *map(coplaced, candidates)))
    for place in tried:
        portfolio.add(place)
    if not portfolio.candidates:
        raise portfolio.infeasible()
    if len(problem.devices) > 1:
        portfolio.search(_moves(problem) if moves is None else moves)
        # Exact methods know of no iterations that overlap.
        if exact and len(problem.graph) <= _EXACT_OPERATIONS and not problem.graph.loops:
            portfolio.solve()
    portfolio.predict()
    if problem.costs.in_stages and len(problem.devices) > 1:
        portfolio.search_stages(_stage_moves(problem) if moves is None else moves)
    if margin is None:
        margin = MARGIN if problem.costs.are_estimates else 0.0
    return portfolio.result(margin)


class _Portfolio:
    """The candidates of a problem and their predicted times."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.bound = lower_bound(problem)
        self.candidates: dict[str, tuple[float, Schedule]] = {}
        self.reasons: dict[str, str] = {}
        self._may_fit = True
        self._not_fitting = ""  # why even placements made to hold the limits do not

    @property
    def best(self) -> str:
        """The name of the candidate with the least predicted time."""
        return min(self.candidates, key=lambda name: self.candidates[name][0])

    @property
    def _is_optimal(self) -> bool:
        return self.candidates[self.best][0] <= self.bound * (1 + 1e-9)

    def add(self, place: PlaceFunction) -> None:
        """Adds the schedule of a strategy, repaired if it exceeds memory limits."""
        name = name_of(place)
        try:
            schedule = scheduled(self.problem, place)
        except ResourceExhaustedError as error:
            self.reasons[name] = error.message
            self._add_fitted(place)
        except OpError as error:
            self.reasons[name] = error.message
        else:
            self._add(name, schedule)

    def _add_fitted(self, place: PlaceFunction) -> None:
        if not self._may_fit or not any(map(math.isfinite, capacity_of(self.problem))):
            return
        changed = fitted(place)
        try:
            self._add(name_of(changed), scheduled(self.problem, changed))
        except OpError as error:
            self.reasons[name_of(changed)] = error.message
            self._may_fit = bool(self.candidates)
            if not self.candidates:
                self._not_fitting = error.message

    def infeasible(self) -> ResourceExhaustedError:
        """Returns the error if no strategy found a placement, with the reasons."""
        first = next(iter(self.reasons.values()))
        reasons = "; ".join(dict.fromkeys(filter(None, (first, self._not_fitting))))
        return ResourceExhaustedError(
            f"no strategy found a placement, of {len(self.reasons)} that were tried: {reasons}"
        )

    def search(self, moves: int) -> None:
        """Improves the best candidates by annealing, and then the overall best once more."""
        if moves < 1:
            return
        n = len(self.problem.graph)
        is_small = n <= _SMALL
        hots = _STARTS if is_small else ()
        last = _STARTS[0] if is_small else _OPERATION_HEAT / n
        names = sorted(self.candidates, key=lambda name: self.candidates[name][0])
        runs = [*zip(names, hots, strict=False), ("", last)]
        for seed, (name, hot) in enumerate(runs):
            if self._is_optimal:
                return
            start = name or self.best
            schedule = self.candidates[start][1]
            schedule = improved(
                self.problem, schedule, moves=moves // len(runs), seed=seed, hot=hot
            )
            time = makespan(self.problem, schedule)
            if time < self.candidates[self.best][0]:
                label = start if start.endswith("+search") else f"{start}+search"
                self.candidates[label] = (time, schedule)

    def solve(self) -> None:
        """Adds the results of exact methods, limited in effort, and their lower bounds."""
        methods: tuple[tuple[str, Callable[..., Optimum]], ...] = (
            ("exhaustive", partial(exhaustive_optimum, nodes=_EXHAUSTIVE_NODES)),
            ("exact", partial(optimal, seconds=math.inf, nodes=_SOLVER_NODES)),
        )
        for name, method in methods:
            if self._is_optimal:
                return
            try:
                best = method(self.problem, upper=self.candidates[self.best][1])
            except OpError as error:
                self.reasons[name] = error.message
                continue
            self.bound = max(self.bound, best.bound)
            time = makespan(self.problem, best.schedule)
            if time < self.candidates[self.best][0]:
                self.candidates[name] = (time, best.schedule)

    def predict(self) -> None:
        """Replaces the makespans of all candidates by their predicted step times."""
        if is_makespan(self.problem.costs):
            return
        self.candidates = {
            name: (predicted_seconds(self.problem, schedule), schedule)
            for name, (_, schedule) in self.candidates.items()
        }

    def search_stages(self, moves: int) -> None:
        """Improves the best candidate, and the best one besides "single", by search in stages."""
        names = sorted(self.candidates, key=lambda name: self.candidates[name][0])
        starts = dict.fromkeys([*names[:1], *[name for name in names if name != "single"][:1]])
        for seed, name in enumerate(starts):
            if self._is_optimal or moves < len(starts):
                return
            schedule = improved_in_stages(
                self.problem, self.candidates[name][1], moves=moves // len(starts), seed=seed
            )
            time = predicted_seconds(self.problem, schedule)
            if time < self.candidates[name][0]:
                self.candidates[f"{name}+stages"] = (time, schedule)

    def result(self, margin: float) -> PortfolioResult:
        """Returns the best candidate that beats one device even at worst costs, else "single"."""
        alone = self.candidates.get("single", (math.inf,))[0]
        faster = [
            name for name in self.candidates if self.candidates[name][0] <= alone * (1 - margin)
        ]
        faster.sort(key=lambda name: self.candidates[name][0])
        certain = (name for name in faster[:_MOST_CHECKED] if self._is_faster_at_worst(name))
        best = next(certain, "single" if math.isfinite(alone) else self.best)
        predicted = {name: time for name, (time, _) in self.candidates.items()}
        bound = min(self.bound, *predicted.values())
        return PortfolioResult(self.candidates[best][1], best, predicted, bound)

    def _is_faster_at_worst(self, name: str) -> bool:
        costs = self.problem.costs
        if name == "single" or "single" not in self.candidates:
            return True
        if not (costs.work_error or costs.message_error):
            return True
        worst = self.problem._replace(costs=costs.at_worst())
        time, alone = (predicted_seconds(worst, self.candidates[n][1]) for n in (name, "single"))
        return time < alone

    def _add(self, name: str, schedule: Schedule) -> None:
        self.candidates[name] = (makespan(self.problem, schedule), schedule)


def _moves(problem: Problem) -> int:
    """Returns the number of moves that take about half a second; 0 if that is too few to help."""
    speed = _COMPILED_SPEED if can_compile() else 1
    moves = min(_MOST_MOVES, _MOVED_OPERATIONS // max(len(problem.graph), 1)) * speed
    return moves if moves >= _LEAST_MOVES else 0


def _stage_moves(problem: Problem) -> int:
    """Returns the number of moves that take about a second; 0 if that is too few to help."""
    moves = min(_MOST_MOVES, _STAGED_OPERATIONS // max(n_runs(problem.graph), 1))
    return moves if moves >= _LEAST_MOVES else 0


def _candidates(problem: Problem) -> Iterator[PlaceFunction]:
    """Yields the strategies to try, the most valuable first, for about a second in all."""
    n, p = len(problem.graph), len(problem.devices)
    if n > 2 * _MOST_GROUPS:
        # Earliest task first looks at every device for every operation, grouped or not.
        few = n * p > 10 * _EVALUATIONS
        lists: tuple[PlaceFunction, ...] = (heft_c,) if few else (heft_c, earliest_finish)
        n_groups = min(_MOST_GROUPS, max(_GROUP_CHOICES // p, p))
        yield from (grouped(place, n_groups) for place in lists)
        yield from _BASELINES[:1] if few else _BASELINES
        return
    for n_groups in (4 * p, 16 * p):
        if 2 * n_groups <= n:
            yield from (grouped(place, n_groups) for place in (heft_c, etf_c))
    left = _EVALUATIONS
    for place in _lists(problem):
        for each in (place, coplaced(place)):
            if left >= n * p:
                left -= n * p
                yield each
    for place in _BASELINES:
        yield place
        if n * p <= _EVALUATIONS / 4:
            yield coplaced(place)


def _lists(problem: Problem) -> Iterator[PlaceFunction]:
    """Yields the list schedulers that are fast enough for the size of the problem."""
    n, p = len(problem.graph), len(problem.devices)
    yield from _LISTS
    if n * p * p <= _EVALUATIONS:
        yield peft
    if n <= 300:
        yield m_sct
    if n <= 2000:
        yield min_cut_runs
    if can_cut():
        yield metis

"""`auto`: the best of many strategies, as the simulator sees them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jflow.errors import OpError, ResourceExhaustedError
from jflow.schedule.bounds import lower_bound
from jflow.schedule.problem import Problem
from jflow.schedule.schedule import PlaceFunction, Schedule, name_of, scheduled, strategy
from jflow.schedule.simulate import simulate
from jflow.schedule.strategies.contiguous import m_topo, min_cut_runs
from jflow.schedule.strategies.coplacing import coplaced
from jflow.schedule.strategies.list_scheduling import (
    cpop,
    earliest_finish,
    etf,
    etf_c,
    heft,
    heft_c,
    peft,
)
from jflow.schedule.strategies.search import improved
from jflow.schedule.strategies.simple import greedy_load, greedy_lpt, round_robin, single

MARGIN = 0.1
"""`auto` leaves a single device for a predicted gain of more than this share of its time.

Costs are estimates: with errors of 20 %, a placement that should gain less is as often slower.
"""

_STARTS = 3
"""How many of the best candidates the search begins with."""

_MOST_MOVES = 18_000
_MOVED_OPERATIONS = 150_000
"""A simulated operation takes about 3 µs, so this many take half a second."""

_CANDIDATES: tuple[PlaceFunction, ...] = (
    *(earliest_finish, heft, heft_c, cpop, peft, etf, etf_c),
    *(greedy_load, greedy_lpt, round_robin, m_topo, min_cut_runs),
)


@dataclass(frozen=True)
class PortfolioResult:
    """What `auto` chose and why.

    Attributes:
      schedule: the choice.
      strategy: the strategy that it is of.
      predicted: the makespan of each candidate in seconds, by the name of its strategy.
      bound: what every schedule takes at least, in seconds.
      reasons: why the other strategies gave no candidate, by name.
    """

    schedule: Schedule
    strategy: str
    predicted: Mapping[str, float]
    bound: float
    reasons: Mapping[str, str]


@strategy
def auto(problem: Problem) -> Schedule:
    """The schedule of the portfolio with the least predicted time, improved by search."""
    return choose(problem).schedule


def choose(
    problem: Problem,
    candidates: Sequence[PlaceFunction] = _CANDIDATES,
    *,
    moves: int | None = None,
    margin: float = MARGIN,
) -> PortfolioResult:
    """The schedule with the least predicted makespan.

    Args:
      problem: what to schedule.
      candidates: strategies, each of which is tried as it is and with coplacing; a single device is
        always a candidate.
      moves: how many changes of the best candidates to try afterwards; fewer for larger graphs by
        default, so that the search takes about half a second. The candidates of 300 operations take
        0.2 s, those of 4,000 on 8 devices 18 s.
      margin: the gain over a single device for which it is left, as a share of its time.

    Raises:
      ResourceExhaustedError: if no strategy finds a schedule under the memory limits.
    """
    found: dict[str, tuple[float, Schedule]] = {}
    reasons: dict[str, str] = {}
    tried: list[PlaceFunction] = [single, *candidates, *map(coplaced, candidates)]
    for place in tried:
        name = name_of(place)
        try:
            schedule = scheduled(problem, place)
        except OpError as error:
            reasons[name] = error.message
            continue
        found[name] = (simulate(problem, schedule).makespan, schedule)
    if not found:
        raise ResourceExhaustedError(
            "no strategy found a placement: " + "; ".join(f"{n}: {r}" for n, r in reasons.items())
        )
    best = min(found, key=lambda name: found[name][0])
    if moves is None:
        moves = min(_MOST_MOVES, _MOVED_OPERATIONS // max(len(problem.graph), 1))
    if len(problem.devices) > 1:
        starts = sorted(found, key=lambda name: found[name][0])[:_STARTS]
        for seed, name in enumerate(starts):
            searched = improved(problem, found[name][1], moves=moves // _STARTS, seed=seed)
            makespan = simulate(problem, searched).makespan
            if makespan < found[best][0]:
                best = f"{name}+search"
                found[best] = (makespan, searched)
    alone = found.get("single", (math.inf,))[0]
    if found[best][0] > alone * (1 - margin):
        best = "single"
    predicted = {name: makespan for name, (makespan, _) in found.items()}
    return PortfolioResult(found[best][1], best, predicted, lower_bound(problem), reasons)

"""Searches for small graphs on which a strategy does badly (W10).

After Coleman and Krishnamachari, "Comparing task graph scheduling algorithms: an adversarial
approach" (PISA, 2024): simulated annealing over instances, whose objective is the makespan of one
strategy divided by that of the best of some others.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jflow.compiler.schedule import (
    Constraints,
    Costs,
    PlaceFunction,
    Problem,
    graph_of,
    scheduled,
    simulate,
)
from jflow.compiler.schedule.schedule import name_of
from jflow.compiler.schedule.strategies import STRATEGIES
from jflow.lab.families import FAMILIES, random_problem
from jflow.lab.suite.cases import ADVERSARIAL, Scalar, SuiteCase
from jflow.lab.suite.contenders import Contender

RIVALS = ("single", "heft", "heft_c", "etf_c", "peft", "min_cut_runs")
"""Fast strategies whose best result an instance compares with."""

STEPS, QUICK_STEPS = 400, 30
SLOW = {"auto": 20}
"""How many times fewer steps are taken against a strategy that takes long."""

_N, _N_DEVICES = 12, 3
_HOT, _COLD = 0.2, 0.005
"""Temperatures at the begin and the end, in units of the logarithm of the ratio."""


@dataclass(frozen=True)
class _Instance:
    """A problem of equal devices, as lists that can be changed."""

    seconds: tuple[float, ...]
    edges: tuple[tuple[int, int, float], ...]

    def problem(self) -> Problem:
        off = 1.0 - np.eye(_N_DEVICES)
        costs = Costs(np.outer(self.seconds, np.ones(_N_DEVICES)), 0 * off, off)
        graph = graph_of(range(len(self.seconds)), self.edges)
        return Problem(graph, [f"device {i}" for i in range(_N_DEVICES)], costs, Constraints())

    def changed(self, rng: random.Random) -> _Instance:
        """Returns a neighbour: another cost, another size, a dependency more or less."""
        seconds, edges = [*self.seconds], [*self.edges]
        kind = rng.randrange(4)
        if kind == 0:
            i = rng.randrange(len(seconds))
            seconds[i] = _clipped(seconds[i] * rng.lognormvariate(0, 0.7))
        elif kind == 1 and edges:
            i = rng.randrange(len(edges))
            a, b, size = edges[i]
            edges[i] = (a, b, _clipped(size * rng.lognormvariate(0, 0.7)))
        elif kind == 2:
            a, b = sorted(rng.sample(range(len(seconds)), 2))
            if all((a, b) != edge[:2] for edge in edges):
                edges.append((a, b, rng.lognormvariate(0, 0.7)))
        elif len(edges) > 1:
            edges.pop(rng.randrange(len(edges)))
        return replace(self, seconds=tuple(seconds), edges=tuple(edges))


def adversarial_cases(
    contenders: Sequence[Contender], seed: int, quick: bool
) -> Iterator[SuiteCase]:
    """One case against each strategy; it is searched for when its problem is built."""
    for contender in contenders:
        steps = max((QUICK_STEPS if quick else STEPS) // SLOW.get(contender.name, 1), 2)
        parameters: dict[str, Scalar] = {
            "against": contender.name,
            "steps": steps,
            "seed": seed,
            "fingerprint": contender.fingerprint,
        }

        def build(place: PlaceFunction = contender.place, steps: int = steps) -> Problem:
            return adversarial_problem(place, steps=steps, seed=seed)

        yield SuiteCase(ADVERSARIAL, ADVERSARIAL, _N_DEVICES, parameters, build)


def adversarial_problem(place: PlaceFunction, *, steps: int, seed: int) -> Problem:
    """Returns the worst problem found for a strategy, of 12 operations on 3 devices under one port.

    Args:
      place: the strategy. Where it fails there is nothing to search; the table says why.
      steps: how many changes to try.
      seed: of the random numbers; equal arguments give equal problems.
    """
    rng = random.Random(seed)
    rivals = [STRATEGIES[name] for name in RIVALS if name != name_of(place)]
    start = random_problem(rng.choice([*FAMILIES]), _N, _N_DEVICES, seed=seed)
    here = worst = _instance_of(start)
    present = most = _badness(here, place, rivals)
    for step in range(steps if math.isfinite(present) else 0):
        candidate = here.changed(rng)
        badness = _badness(candidate, place, rivals)
        temperature = _HOT * (_COLD / _HOT) ** (step / steps)
        if badness >= present or rng.random() < math.exp((badness - present) / temperature):
            here, present = candidate, badness
        if badness > most:
            worst, most = candidate, badness
    return worst.problem()


def _badness(instance: _Instance, place: PlaceFunction, rivals: Sequence[PlaceFunction]) -> float:
    """Logarithm of the strategy's makespan divided by the best of its rivals."""
    problem = instance.problem()
    try:
        own = simulate(problem, scheduled(problem, place)).makespan
    except Exception:
        return -math.inf
    best = min(simulate(problem, scheduled(problem, each)).makespan for each in rivals)
    return math.log(own / best)


def _instance_of(problem: Problem) -> _Instance:
    """Returns the instance of a problem, its operations in topological order."""
    order = problem.graph.order
    position = {operation: i for i, operation in enumerate(order)}
    seconds = tuple(float(problem.costs.seconds[operation, 0]) for operation in order)
    edges = tuple(
        (position[edge.producer], position[consumer], edge.n_bytes)
        for edge in problem.graph.edges
        for consumer in edge.consumers
    )
    return _Instance(seconds, edges)


def _clipped(value: float) -> float:
    return min(max(value, 0.01), 100.0)

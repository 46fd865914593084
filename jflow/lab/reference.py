"""Strategies compared with earlier measurements of independent implementations.

`TABLE_A` and `TABLE_C` are the rows that a study of these strategies measured on graphs of like
families; its implementations share no code with `jflow.compiler.schedule`. `small_ratios` and
`large_ratios` measure the same here.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

import numpy as np

from jflow.compiler.schedule import (
    ONE_PORT,
    UNLIMITED,
    Constraints,
    Costs,
    Dependency,
    OperationGraph,
    Problem,
    scheduled,
    simulate,
)
from jflow.compiler.schedule.strategies import OPTIONAL, STRATEGIES, choose
from jflow.errors import OpError
from jflow.lab.families import FAMILIES, Edges
from jflow.lab.optima import KnownOptimum

TABLE_A: Mapping[str, float] = {
    "single": 1.498,
    "random": 1.601,
    "round_robin": 1.770,
    "greedy_load": 1.764,
    "m_topo": 1.466,
    "metis": 1.417,
    "earliest_finish": 1.117,
    "heft": 1.088,
    "cpop": 1.139,
    "peft": 1.113,
    "etf": 1.086,
    "m_sct": 1.100,
}
"""Mean ratio to the proven optimum: 10 to 20 operations, 2 or 4 devices, without contention."""

TABLE_C: Mapping[str, float] = {
    "single": 3.40,
    "random": 3.84,
    "round_robin": 3.48,
    "greedy_load": 3.20,
    "m_topo": 2.35,
    "metis": 1.79,
    "earliest_finish": 2.03,
    "heft": 1.87,
    "peft": 1.85,
    "etf": 1.66,
    "m_sct": 2.02,
    "heft_c": 1.51,
    "etf_c": 1.35,
}
"""Mean ratio to the best known: 300 operations, 8 devices, one port, 24 graphs."""

PARAMETER_SERVERS = "parameter_servers"
"""Training steps of replicas that share variables, see `training_edges`."""

LARGE = ("layered", "fork_join", "wavefront", PARAMETER_SERVERS)
"""The families of table C."""

_N_LAYERS, _N_REPLICAS, _N_DEVICES = 16, 8, 8


def small_ratios(optima: Iterable[KnownOptimum], limit: int = 216) -> dict[str, float]:
    """Table A: mean ratios of strategies, on proven graphs of 10 to 20 operations."""
    ratios: dict[str, list[float]] = {}
    chosen = [known for known in optima if known.is_proven and _is_in_table_a(known)]
    for known in chosen[:limit]:
        for name, makespan in _makespans(known.case.problem()):
            ratios.setdefault(name, []).append(makespan / known.makespan)
    return {name: statistics.fmean(found) for name, found in ratios.items()}


def large_ratios(family: str, ccr: float, seed: int) -> dict[str, float]:
    """Ratios to the best of all strategies, `auto` included, on a graph of table C.

    Arguments as for `large_problem`.
    """
    problem = large_problem(family, ccr, seed)
    makespans = dict(_makespans(problem))
    chosen = choose(problem, margin=0.0)
    makespans["auto"] = chosen.predicted[chosen.strategy]
    best = min(makespans.values())
    return {name: makespan / best for name, makespan in makespans.items()}


def large_problem(family: str, ccr: float, seed: int) -> Problem:
    """Returns a problem of table C: about 300 operations on 8 equal devices under one port.

    An operation has one result, which is sent to a device once, as in the study; in
    `random_problem` each consumer gets a tensor of its own.

    Args:
      family: one of `LARGE`.
      ccr: mean time of a transfer divided by that of an operation.
      seed: of the random numbers; equal arguments give equal problems.
    """
    rng = random.Random(f"{family} {ccr} {seed}")
    if family == PARAMETER_SERVERS:
        n, edges = training_edges(_N_LAYERS, _N_REPLICAS)
        variables = range(_N_LAYERS)
        classes = (*variables, *variables, *range(_N_LAYERS, n - _N_LAYERS))
    else:
        n, edges = FAMILIES[family](rng, 300)
        classes = tuple(range(n))
    seconds = np.array([rng.lognormvariate(0, 0.6) for _ in range(n)])
    off = 1.0 - np.eye(_N_DEVICES)
    costs = Costs(np.outer(seconds, np.ones(_N_DEVICES)), 0 * off, off, ONE_PORT)
    consumers: dict[int, list[int]] = {}
    for producer, consumer in dict.fromkeys(edges):
        consumers.setdefault(producer, []).append(consumer)
    size = ccr * float(seconds.mean())
    sent = [
        Dependency(producer, tuple(users), size * rng.lognormvariate(0, 0.6))
        for producer, users in consumers.items()
    ]
    graph = OperationGraph(tuple(range(n)), tuple(sent))
    devices = [f"device {i}" for i in range(_N_DEVICES)]
    return Problem(graph, devices, costs, Constraints(classes=classes)).checked()


def training_edges(n_layers: int, n_replicas: int) -> tuple[int, Edges]:
    """Returns a training step of replicas that share a variable for each layer.

    Operations 0 to `n_layers` - 1 are the variables, the next ones their updates, which belong on
    the device of the variable. Each replica computes its layers forwards and their gradients
    backwards, both from the variable; an update takes the gradients of all replicas.

    Returns:
      The number of operations, and the pairs that depend.
    """
    edges: Edges = []
    n_operations = 2 * n_layers
    for _ in range(n_replicas):
        there = range(n_operations, n_operations + n_layers)
        back = range(n_operations + n_layers, n_operations + 2 * n_layers)
        n_operations += 2 * n_layers
        edges += pairwise(there)
        edges += pairwise(reversed(back))
        for i in range(n_layers):
            edges += [(i, there[i]), (i, back[i]), (there[i], back[i]), (back[i], n_layers + i)]
    return n_operations, edges


def _is_in_table_a(known: KnownOptimum) -> bool:
    case = known.case
    return (
        case.network == UNLIMITED
        and case.heterogeneity == 1.0
        and case.n >= 10
        and case.n_devices in (2, 4)
    )


def _makespans(problem: Problem) -> Iterator[tuple[str, float]]:
    """Yields each strategy that ships, but `auto` and those that are not installed."""
    for name, place in (STRATEGIES | OPTIONAL).items():
        if name != "auto":
            try:
                yield name, simulate(problem, scheduled(problem, place)).makespan
            except OpError:
                continue

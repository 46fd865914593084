"""Balanced graph partitioning by METIS, if `pymetis` is installed (the extra `metis`)."""

from __future__ import annotations

import importlib
import importlib.util
from collections import defaultdict

from jflow.compiler.schedule.problem import Problem, class_sums, classes_of
from jflow.compiler.schedule.schedule import Schedule, strategy
from jflow.compiler.schedule.strategies.simple import by_class, preferring
from jflow.errors import FailedPreconditionError

_LARGEST = 10_000
"""Weights are integers; the largest becomes this."""


def can_cut() -> bool:
    """Whether METIS is installed; does not import it."""
    return importlib.util.find_spec("pymetis") is not None


@strategy
def metis(problem: Problem) -> Schedule:
    """Partitions into one part per device, of equal work and with the least bytes between parts.

    METIS (Karypis and Kumar, 1998) cuts an undirected graph, so it does not know what has to run
    before what. Its nodes are the colocation classes; a class that may not be on its part's device,
    or does not fit there, goes to the first device that it may go to.

    Raises:
      FailedPreconditionError: if METIS is not installed.
    """
    if not can_cut():
        raise FailedPreconditionError(
            "the strategy metis needs the package pymetis; install it by pip install 'jflow[metis]'"
        )
    work = class_sums(problem, problem.costs.mean_seconds)
    numbers = {number: i for i, number in enumerate(work)}
    node = [numbers[number] for number in classes_of(problem)]
    sent: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for edge in problem.graph.edges:
        a, seconds = node[edge.producer], problem.costs.mean_transfer(edge.n_bytes)
        for b in {node[consumer] for consumer in edge.consumers} - {a}:
            sent[a][b] += seconds
            sent[b][a] += seconds
    part = _parts([*work.values()], sent, len(problem.devices))
    return by_class(problem, preferring(dict(zip(work, part, strict=True))))


def _parts(work: list[float], sent: dict[int, dict[int, float]], n_parts: int) -> list[int]:
    if n_parts == 1 or len(work) <= 1:
        return [0] * len(work)
    heaviest = max((w for row in sent.values() for w in row.values()), default=1.0) or 1.0
    largest = max(work) or 1.0
    starts, neighbors, weights = [0], [], []
    for i in range(len(work)):
        for j, weight in sent[i].items():
            neighbors.append(j)
            weights.append(max(1, round(weight / heaviest * _LARGEST)))
        starts.append(len(neighbors))
    answer = importlib.import_module("pymetis").part_graph(
        n_parts,
        xadj=starts,
        adjncy=neighbors,
        vweights=[max(1, round(w / largest * _LARGEST)) for w in work],
        eweights=weights,
    )
    return [int(part) for part in answer[1]]

"""Small communication times: list scheduling that keeps favorite children on one device."""

from __future__ import annotations

import numpy as np

from jflow.compiler.schedule.partial import PartialSchedule
from jflow.compiler.schedule.problem import Problem
from jflow.compiler.schedule.schedule import Schedule, mean_transfers, strategy, upward_ranks
from jflow.errors import ResourceExhaustedError

_FAVORITE = 0.5
"""An edge whose variable is below this is one on which nothing is sent."""


@strategy
def m_sct(problem: Problem) -> Schedule:
    """Schedules by earliest start; a device is reserved for its last operation's favorite child.

    Small Communication Times (Hanen and Munier, 1995) under memory limits, as in Baechi (Jeon et
    al., 2020). The favorite children are those of the relaxed linear program, solved by HiGHS. A
    device waits for the favorite child of its last operation for as long as it would take to send
    what the child needs elsewhere.
    """
    favorites = favorite_children(problem)
    partial, ranks = PartialSchedule(problem), upward_ranks(problem)
    latest: dict[int, int] = {}  # the last operation of each device
    missing = [len(before) for before in problem.graph.predecessors]
    ready = [operation for operation, count in enumerate(missing) if not count]
    sent = _largest_transfers(problem)

    def urgency(operation: int, device: int) -> tuple[float, float, int, int]:
        start = partial.earliest_start(operation, device)
        child = favorites.get(latest.get(device, -1))
        if child is not None and child != operation and partial.devices[child] < 0:
            reserved_until = partial.finish[latest[device]] + sent[latest[device]]
            start = max(start, reserved_until)
        return start, -ranks[operation], operation, device

    while ready:
        choices = [(op, device) for op in ready for device in partial.options(op)]
        _, _, operation, device = min(urgency(*choice) for choice in choices)
        partial.place(operation, device)
        latest[device] = operation
        ready.remove(operation)
        for successor in problem.graph.successors[operation]:
            missing[successor] -= 1
            if not missing[successor]:
                ready.append(successor)
    return partial.schedule()


def favorite_children(problem: Problem) -> dict[int, int]:
    """Returns each operation's favorite child: the successor that the linear program keeps with it.

    The program: minimize the end, such that each operation starts after each input has been made,
    and sent if the variable of its edge is 1; of the edges of an operation to its successors all
    but one are 1, and likewise of those from its predecessors.

    Raises:
      ResourceExhaustedError: if HiGHS does not solve it.
    """
    graph, costs = problem.graph, problem.costs
    n = len(graph)
    seconds = costs.mean_seconds
    sizes: dict[tuple[int, int], float] = {}
    for edge in graph.edges:
        for consumer in edge.consumers:
            pair = (edge.producer, consumer)
            sizes[pair] = max(sizes.get(pair, 0.0), costs.mean_transfer(edge.n_bytes))
    column = {pair: n + 1 + i for i, pair in enumerate(sizes)}
    rows: list[tuple[dict[int, float], float]] = []  # sum of coefficients >= value
    for (a, b), sent in sizes.items():
        rows.append(({b: 1.0, a: -1.0, column[a, b]: -sent}, seconds[a]))
    for operation in range(n):
        rows.append(({n: 1.0, operation: -1.0}, seconds[operation]))
        for pairs in (
            [(operation, after) for after in graph.successors[operation]],
            [(before, operation) for before in graph.predecessors[operation]],
        ):
            if pairs:
                rows.append(({column[pair]: 1.0 for pair in pairs}, len(pairs) - 1.0))
    x = _solved(rows, n, len(sizes))
    return {a: b for (a, b), at in column.items() if x[at] < _FAVORITE}


def _solved(rows: list[tuple[dict[int, float], float]], n: int, n_edges: int) -> np.ndarray:
    # Few programs use them, and every one that imports jflow would wait for their import.
    import scipy.optimize  # noqa: PLC0415
    import scipy.sparse  # noqa: PLC0415

    entries = [(i, j, value) for i, (row, _) in enumerate(rows) for j, value in row.items()]
    at, columns, values = zip(*entries, strict=True)
    matrix = scipy.sparse.csr_array((values, (at, columns)), (len(rows), n + 1 + n_edges))
    objective = np.zeros(n + 1 + n_edges)
    objective[n] = 1.0
    solution = scipy.optimize.linprog(
        objective,
        A_ub=-matrix,
        b_ub=[-value for _, value in rows],
        bounds=[(0, None)] * (n + 1) + [(0, 1)] * n_edges,
        method="highs",
    )
    if solution.x is None:
        raise ResourceExhaustedError(f"the program for favorite children: {solution.message}")
    return np.asarray(solution.x)


def _largest_transfers(problem: Problem) -> list[float]:
    """Returns the seconds to send each operation's largest result to another device."""
    largest = [0.0] * len(problem.graph)
    for edge, sent in zip(problem.graph.edges, mean_transfers(problem), strict=True):
        largest[edge.producer] = max(largest[edge.producer], sent)
    return largest

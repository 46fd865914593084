"""Task graphs with published schedules."""

from __future__ import annotations

import numpy as np

from jflow.compiler.schedule import UNLIMITED, Constraints, Costs, Problem, graph_of


def problem(seconds: list[list[float]], edges: list[tuple[int, int, float]]) -> Problem:
    """A problem whose edges cost the same between every two devices."""
    table = np.array(seconds, float)
    n, p = table.shape
    off = 1.0 - np.eye(p)
    graph = graph_of([f"T{i + 1}" for i in range(n)], [(a - 1, b - 1, c) for a, b, c in edges])
    costs = Costs(table, 0 * off, off, UNLIMITED)
    return Problem(graph, [f"P{i + 1}" for i in range(p)], costs, Constraints()).checked()


TOPCUOGLU = problem(
    [
        [14, 16, 9],
        [13, 19, 18],
        [11, 13, 19],
        [13, 8, 17],
        [12, 13, 10],
        [13, 16, 9],
        [7, 15, 11],
        [5, 11, 14],
        [18, 12, 20],
        [21, 7, 16],
    ],
    [
        *((1, 2, 18), (1, 3, 12), (1, 4, 9), (1, 5, 11), (1, 6, 14)),
        *((2, 8, 19), (2, 9, 16), (3, 7, 23), (4, 8, 27), (4, 9, 23)),
        *((5, 9, 13), (6, 8, 15), (7, 10, 17), (8, 10, 11), (9, 10, 13)),
    ],
)
"""The example of Topcuoglu, Hariri and Wu (2002), figure 2: HEFT gives 80, CPOP 86."""

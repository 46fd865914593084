"""Repairs placements that exceed memory limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jflow.compiler.schedule.problem import (
    Problem,
    capacity_of,
    class_sums,
    classes_of,
    infeasible,
    resident_of,
)
from jflow.compiler.schedule.schedule import PlaceFunction, Schedule, Scheduler, scheduled, variant
from jflow.errors import ResourceExhaustedError

_MOST_CHOICES = 20_000
"""Classes times devices that the solver is given."""

_MOST_NODES = 5_000
"""Nodes of the search tree after which the solver gives up; it needs a few."""


def fitted(place: PlaceFunction) -> Scheduler[[]]:
    """Wraps a strategy: it places without memory limits, then the placement is changed to fit.

    List schedulers fill devices as they go, and may be left with a class for which no device has
    room though a placement exists.
    """

    def changed_to_fit(problem: Problem) -> Schedule:
        free = problem._replace(constraints=replace(problem.constraints, capacity=()))
        schedule = scheduled(free, place)
        return replace(schedule, devices=tuple(fitting(problem, schedule.devices)))

    return variant(place, "fitting", changed_to_fit)


def fitting(problem: Problem, wanted: Sequence[int]) -> list[int]:
    """Returns the placement within memory limits that moves the least work from the wanted one.

    First-fit decreasing where that is enough, and otherwise an integer program (HiGHS in SciPy).
    That finds a placement whenever one exists, but for problems of more than 20,000 choices, which
    are left to the first way.

    Args:
      problem: whose limits are to hold.
      wanted: a device for each operation, equal in each class and among the allowed ones.

    Raises:
      ResourceExhaustedError: if no placement holds the limits, or none was found.
    """
    classes = _Classes(problem, wanted)
    chosen = classes.kept()
    if chosen is None and len(classes.numbers) * len(problem.devices) <= _MOST_CHOICES:
        chosen = classes.solved()
    if chosen is None:
        chosen = classes.first_fit()
    return [chosen[number] for number in classes_of(problem)]


class _Classes:
    """Colocation classes with their resident bytes and wanted devices."""

    def __init__(self, problem: Problem, wanted: Sequence[int]) -> None:
        self.problem = problem
        self.capacity = capacity_of(problem)
        self.wanted = dict(zip(classes_of(problem), wanted, strict=True))
        self.numbers = [*self.wanted]
        self.needed = class_sums(problem, resident_of(problem))
        self.work = class_sums(problem, problem.costs.mean_seconds)
        every = tuple(range(len(problem.devices)))
        self.allowed = {n: problem.constraints.allowed.get(n, every) for n in self.numbers}

    def kept(self) -> dict[int, int] | None:
        """Returns the wanted placement if it is within the limits, else None."""
        used = [0.0] * len(self.capacity)
        for number, device in self.wanted.items():
            used[device] += self.needed[number]
        fits = all(u <= c for u, c in zip(used, self.capacity, strict=True))
        return dict(self.wanted) if fits else None

    def first_fit(self) -> dict[int, int]:
        """Places the largest classes first, on the wanted device or on that with the most room."""
        room, chosen = list(self.capacity), {}
        for number in sorted(self.numbers, key=lambda each: -self.needed[each]):
            options = self.allowed[number]
            device = self.wanted[number]
            if room[device] < self.needed[number]:
                device = max(options, key=lambda each: (room[each], -each))
            if room[device] < self.needed[number]:
                first = classes_of(self.problem).index(number)
                raise infeasible(self.problem, first, self.needed[number], room[device])
            chosen[number] = device
            room[device] -= self.needed[number]
        return chosen

    def solved(self) -> dict[int, int] | None:
        """Solves the placement as an integer program; returns None if the solver fails."""
        # Few programs use them, and every one that imports jflow would wait for their import.
        import scipy.optimize  # noqa: PLC0415
        import scipy.sparse  # noqa: PLC0415

        pairs = [(number, device) for number in self.numbers for device in self.allowed[number]]
        rows, columns, values = [], [], []
        row_of = {number: i for i, number in enumerate(self.numbers)}
        limited = [d for d, c in enumerate(self.capacity) if np.isfinite(c)]
        limit_row = {device: len(row_of) + i for i, device in enumerate(limited)}
        for column, (number, device) in enumerate(pairs):
            rows.append(row_of[number])
            columns.append(column)
            values.append(1.0)
            if device in limit_row and self.needed[number]:
                rows.append(limit_row[device])
                columns.append(column)
                values.append(self.needed[number] / (self.capacity[device] or 1.0))
        n_rows = len(row_of) + len(limited)
        matrix = scipy.sparse.csr_array((values, (rows, columns)), (n_rows, len(pairs)))
        least = np.concatenate([np.ones(len(row_of)), np.full(len(limited), -np.inf)])
        most = np.array(
            [1.0] * len(row_of) + [float(self.capacity[device] > 0) for device in limited]
        )
        scale = max(self.work.values()) or 1.0
        objective = [
            (self.work[number] / scale + 0.01) * (device != self.wanted[number])
            for number, device in pairs
        ]
        solution = scipy.optimize.milp(
            np.array(objective),
            integrality=np.ones(len(pairs)),
            bounds=scipy.optimize.Bounds(0, 1),
            constraints=scipy.optimize.LinearConstraint(matrix, least, most),
            options={"node_limit": _MOST_NODES, "mip_rel_gap": 0.05},
        )
        if solution.status == 2:
            raise ResourceExhaustedError(
                f"no placement holds the memory limits: {sum(self.needed.values()):.0f} bytes are "
                f"kept on devices that can keep {sum(self.capacity):.0f}, in colocation classes of "
                f"up to {max(self.needed.values()):.0f}; raise the memory limit, add devices, or "
                "colocate less"
            )
        if solution.x is None:
            return None
        return {
            number: device for (number, device), x in zip(pairs, solution.x, strict=True) if x > 0.5
        }

"""Improves a schedule by simulated annealing on the simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jflow.compiler.schedule.anneal import HELPERS, anneal
from jflow.compiler.schedule.compact import can_compile, compact, compiled, room_of
from jflow.compiler.schedule.problem import Problem
from jflow.compiler.schedule.replay import new_plan, new_run, new_saved
from jflow.compiler.schedule.schedule import Schedule
from jflow.compiler.schedule.simulate import makespan

_HOT, _COLD = 0.05, 0.001
"""Temperatures at the begin and the end, as shares of the first makespan."""

_LEAST_FALL = 4.0
"""By what the temperature is divided during a search at least."""

_COMPILED_MOVES = 1_000_000
"""Moves times operations from which on compiled code is worth its import."""


def improved(
    problem: Problem, schedule: Schedule, *, moves: int, seed: int = 0, hot: float = _HOT
) -> Schedule:
    """The best schedule found from one by moving classes and operations (Kirkpatrick et al., 1983).

    `jflow.compiler.schedule.anneal` says what the moves are. Equal arguments give equal schedules.

    Args:
      problem: what is scheduled.
      schedule: where to start; its memory limits hold.
      moves: how many to try.
      seed: of the random numbers.
      hot: the temperature at the beginning, as a share of the makespan.
    """
    n = len(problem.graph)
    if not n or len(problem.devices) < 2 or moves < 1:
        return schedule
    arrays = moves * n >= _COMPILED_MOVES and can_compile()
    flat = compact(problem, arrays=arrays)
    scale = makespan(problem, schedule)
    rng = np.random.default_rng(seed)
    draws = rng.random((moves, 4))
    cold = min(_COLD, hot / _LEAST_FALL)
    heat = scale * hot * (cold / hot) ** (np.arange(moves) / moves)
    slack = -heat * np.log(1.0 - rng.random(moves))
    room = np.array(room_of(problem, schedule.devices))
    best = np.zeros((3, n), np.int64)
    search: Callable[..., Any] = compiled(anneal, HELPERS) if arrays else anneal
    tables: list[Any] = [room, draws, slack, *best]
    if not arrays:
        tables = [table.tolist() for table in tables]
    room_left, drawn, slacks, devices, order, path = tables
    search(
        flat,
        new_plan(flat, schedule, arrays=arrays),
        (new_run(flat, arrays=arrays), new_run(flat, arrays=arrays)),
        new_saved(flat, arrays=arrays),
        room_left,
        (devices, order, path),
        drawn,
        slacks,
    )
    return Schedule(tuple(map(int, devices)), tuple(map(int, order)))

"""Improves a schedule by simulated annealing on the simulator.

`anneal` is written in the part of Python that Numba compiles.

A move puts a colocation class, or those of two neighbors in the graph that are on one device, on
another device that has room, or an operation earlier or later in the order, as far as its inputs
and consumers let it. Half of the moves are of operations of the critical path, the chain of
operations and transfers that the makespan consists of: no other move can shorten it (Balas, 1969).
A move is simulated from the last saved state that it cannot have changed, and only until it is
certain to be refused: the random number that decides is drawn first, which makes it a limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from jflow.compiler.schedule.compact import Compact, Values, can_compile, compact, compiled
from jflow.compiler.schedule.problem import Problem, room_of
from jflow.compiler.schedule.replay import HELPERS as REPLAY_HELPERS
from jflow.compiler.schedule.replay import (
    MOST_SAVED,
    Chains,
    RunState,
    SavedRun,
    begin_run,
    new_plan,
    new_run,
    new_saved,
    replay,
    restore_run,
)
from jflow.compiler.schedule.schedule import Schedule
from jflow.compiler.schedule.simulate import makespan

_ROUNDING = 1 + 1e-12

_PAIRS, _PLACES = 0.25, 0.6
"""Shares of moves: of two classes, and of one or two."""


def anneal(
    flat: Compact,
    plan: Chains,
    runs: tuple[RunState, RunState],
    saved: SavedRun,
    room: Values,
    best: tuple[Values, Values, Values],
    draws: Values,
    slack: Values,
) -> float:
    """Improves a schedule by random moves of operations between devices and in the order.

    Args:
      flat: the problem.
      plan: the schedule; changed.
      runs, saved: room for runs.
      room: f64[devices], bytes that each device has left; changed.
      best: room for a result, i64[n] each: the devices and the order of the best schedule found,
        and a list of operations.
      draws: f64[moves, 4], random numbers between 0 and 1.
      slack: f64[moves], how much longer than the present schedule a move may make it.

    Returns:
      The makespan of the best schedule.
    """
    now, tried = runs
    best_devices, best_order, path = best
    begin_run(flat, plan, now)
    present = replay(flat, plan, now, saved, 0, math.inf)
    _accept(saved, 0, flat.n)
    least = present
    best_devices[:] = plan.devices
    best_order[:] = plan.order
    n_path = _critical_path(flat, plan, now, path)
    for number in range(len(slack)):
        draw = draws[number]
        pick = draw[1]
        operation = path[int(pick * 2 * n_path)] if pick < 0.5 else int((2 * pick - 1) * flat.n)
        event, operation, old, partner = _move(flat, plan, now, room, operation, draw)
        if event < 0:
            continue
        limit = (present + slack[number]) * _ROUNDING
        state = min((event - 1) // saved.interval[0], MOST_SAVED) if event > 0 else 0
        if state > 0:
            restore_run(tried, now, saved, state - 1)
        else:
            begin_run(flat, plan, tried)
        makespan = replay(flat, plan, tried, saved, state * saved.interval[0], limit)
        if makespan > limit:
            _move_back(flat, plan, now, room, (operation, old, partner), draw[0])
            continue
        now, tried = tried, now
        _accept(saved, state, flat.n)
        present = makespan
        n_path = _critical_path(flat, plan, now, path)
        if makespan < least:
            least = makespan
            best_devices[:] = plan.devices
            best_order[:] = plan.order
    return least


def _move(
    flat: Compact,
    plan: Chains,
    run: RunState,
    room: Values,
    operation: int,
    draw: Values,
) -> tuple[int, int, int, int]:
    """Makes one random move, chosen by the numbers in `draw`.

    Returns:
      The first event of the run that it can change, or -1 if there is no such move; the operation
      that moved, where it was (device or position), and one that moved with it, or -1.
    """
    kind, where, side = draw[0], draw[2], draw[3]
    if kind >= _PLACES:
        operation, target = _other_position(flat, plan, operation, where, side)
        old = int(plan.position[operation])
        if target < 0 or target == old:
            return -1, operation, -1, -1
        return _move_in_order(flat, plan, run, operation, target), operation, old, -1
    target = _other_device(flat, plan, run, operation, where, side)
    if not _may_go(flat, plan, room, operation, target):
        return -1, operation, -1, -1
    old = int(plan.devices[operation])
    partner = _partner(flat, plan, operation, side) if kind < _PAIRS else -1
    event = _move_class(flat, plan, run, room, operation, target)
    if partner >= 0 and _may_go(flat, plan, room, partner, target):
        event = min(event, _move_class(flat, plan, run, room, partner, target))
    else:
        partner = -1
    return event, operation, old, partner


def _move_back(
    flat: Compact,
    plan: Chains,
    run: RunState,
    room: Values,
    moved: tuple[int, int, int],
    kind: float,
) -> None:
    """Undoes a move."""
    operation, old, partner = moved
    if kind >= _PLACES:
        _move_in_order(flat, plan, run, operation, old)
        return
    if partner >= 0:
        _move_class(flat, plan, run, room, partner, old)
    _move_class(flat, plan, run, room, operation, old)


def _accept(saved: SavedRun, first: int, n: int) -> None:
    """Makes the tried run's saved states, from number `first` on, those of the accepted run."""
    for number in range(first, min(MOST_SAVED, n // saved.interval[0])):
        saved.which[number] = 1 - saved.which[number]


def _critical_path(flat: Compact, plan: Chains, run: RunState, path: Values) -> int:
    """Writes the critical path to `path`, last operation first. Returns its length."""
    operation = 0
    for i in range(flat.n):
        if run.finish[i] > run.finish[operation]:
            operation = i
    length = 0
    while operation >= 0:
        path[length] = operation
        length += 1
        before = plan.previous[operation]
        if before >= 0 and run.finish[before] >= run.start[operation]:
            operation = before
        else:
            operation = run.late[operation]
    return length


def _other_device(
    flat: Compact, plan: Chains, run: RunState, operation: int, where: float, side: float
) -> int:
    """Picks another device: that of the last input to arrive, of a neighbour, or a random one."""
    here = plan.devices[operation]
    target = here
    if side < 0.3 and run.late[operation] >= 0:
        target = plan.devices[run.late[operation]]
    elif side < 0.6:
        neighbor = _neighbor(flat, operation, where)
        if neighbor >= 0:
            target = plan.devices[neighbor]
    if target == here:
        target = int(where * (flat.p - 1))
        if target >= here:
            target += 1
    return int(target)


def _neighbor(flat: Compact, operation: int, where: float) -> int:
    """Returns a predecessor or successor of an operation; -1 if there is none."""
    n_before = flat.before[operation + 1] - flat.before[operation]
    n_after = flat.after[operation + 1] - flat.after[operation]
    i = int(where * (n_before + n_after))
    if i < n_before:
        return int(flat.predecessors[flat.before[operation] + i])
    if n_after > 0:
        return int(flat.successors[flat.after[operation] + i - n_before])
    return -1


def _partner(flat: Compact, plan: Chains, operation: int, where: float) -> int:
    """Returns a neighbour on the same device in another colocation class; -1 if there is none."""
    neighbor = _neighbor(flat, operation, where)
    if neighbor < 0 or plan.devices[neighbor] != plan.devices[operation]:
        return -1
    return -1 if flat.class_of[neighbor] == flat.class_of[operation] else neighbor


def _may_go(flat: Compact, plan: Chains, room: Values, operation: int, target: int) -> bool:
    number = flat.class_of[operation]
    return bool(
        target < flat.p
        and target != plan.devices[operation]
        and flat.allowed[number][target] == 1
        and room[target] >= flat.needed[number]
    )


def _other_position(
    flat: Compact, plan: Chains, operation: int, where: float, side: float
) -> tuple[int, int]:
    """Picks an operation and a new position for it between its inputs and its consumers.

    Half of the time the operation changes places with the one before it on its processor; if that
    cannot come later and this not sooner, there is no move, and the position is -1.
    """
    low, high = _window(flat, plan, operation)
    if side < 0.5:
        before = plan.previous[operation]
        if before < 0:
            return operation, -1
        if plan.position[before] >= low:
            return operation, int(plan.position[before])
        low, high = _window(flat, plan, before)
        if plan.position[operation] <= high:
            return int(before), int(plan.position[operation])
        return operation, -1
    return operation, int(low + int(where * (high - low + 1)))


def _window(flat: Compact, plan: Chains, operation: int) -> tuple[int, int]:
    """Returns the first and last position that an operation can move to if the others stay."""
    low, high = 0, flat.n - 1
    for i in range(flat.before[operation], flat.before[operation + 1]):
        low = max(low, plan.position[flat.predecessors[i]] + 1)
    for i in range(flat.after[operation], flat.after[operation + 1]):
        high = min(high, plan.position[flat.successors[i]] - 1)
    return low, high


def _move_class(
    flat: Compact, plan: Chains, run: RunState, room: Values, operation: int, target: int
) -> int:
    """Moves a colocation class to a device. Returns the first event of the run that may change."""
    number = flat.class_of[operation]
    old = plan.devices[operation]
    room[old] += flat.needed[number]
    room[target] -= flat.needed[number]
    first, end = flat.first_member[number], flat.first_member[number + 1]
    event = flat.n
    for i in range(first, end):
        event = min(event, _first_event(flat, plan, run, flat.members[i], True))
    if flat.processor[old] == flat.processor[target]:
        for i in range(first, end):
            plan.devices[flat.members[i]] = target
        return event
    for i in range(first, end):
        _unlink(flat, plan, flat.members[i])
    for i in range(first, end):
        plan.devices[flat.members[i]] = target
        _link(flat, plan, flat.members[i])
    for i in range(first, end):
        event = min(event, _first_event(flat, plan, run, flat.members[i], False))
    return event


def _move_in_order(flat: Compact, plan: Chains, run: RunState, operation: int, to: int) -> int:
    """Moves an operation in the order. Returns the first event of the run that may change."""
    event = _first_event(flat, plan, run, operation, True)
    _unlink(flat, plan, operation)
    at = plan.position[operation]
    step = 1 if to > at else -1
    while at != to:
        other = plan.order[at + step]
        plan.order[at] = other
        plan.position[other] = at
        at += step
    plan.order[to] = operation
    plan.position[operation] = to
    _link(flat, plan, operation)
    return min(event, _first_event(flat, plan, run, operation, False))


def _first_event(
    flat: Compact, plan: Chains, run: RunState, operation: int, with_inputs: bool
) -> int:
    """Returns the first event at which a run may depend on where an operation is.

    It comes to the head of its processor's list when the one before it starts; its inputs are sent
    when they are made.
    """
    event = 0
    if plan.previous[operation] >= 0:
        event = run.launched[plan.previous[operation]]
    if with_inputs:
        for i in range(flat.before[operation], flat.before[operation + 1]):
            event = min(event, run.ended[flat.predecessors[i]])
    return event


def _unlink(flat: Compact, plan: Chains, operation: int) -> None:
    before, after = plan.previous[operation], plan.following[operation]
    if before >= 0:
        plan.following[before] = after
    else:
        plan.first[flat.processor[plan.devices[operation]]] = after
    if after >= 0:
        plan.previous[after] = before


def _link(flat: Compact, plan: Chains, operation: int) -> None:
    """Inserts an operation into the list of its processor, by its position in the order."""
    processor = flat.processor[plan.devices[operation]]
    at = plan.position[operation] - 1
    while at >= 0 and flat.processor[plan.devices[plan.order[at]]] != processor:
        at -= 1
    before = plan.order[at] if at >= 0 else -1
    after = plan.following[before] if before >= 0 else plan.first[processor]
    plan.previous[operation] = before
    plan.following[operation] = after
    if before >= 0:
        plan.following[before] = operation
    else:
        plan.first[processor] = operation
    if after >= 0:
        plan.previous[after] = operation


HELPERS = (
    *(*REPLAY_HELPERS, replay, _accept, _critical_path, _other_device, _may_go, _other_position),
    *(_move, _move_back, _neighbor, _partner),
    *(_window, _move_class, _move_in_order, _first_event, _unlink, _link),
)
"""What `anneal` calls; see `compiled`."""


_HOT, _COLD = 0.05, 0.001
"""Temperatures at the begin and the end, as shares of the first makespan."""

_LEAST_FALL = 4.0
"""By what the temperature is divided during a search at least."""

_COMPILED_MOVES = 1_000_000
"""Moves times operations from which on compiled code is worth its import."""


def improved(
    problem: Problem, schedule: Schedule, *, moves: int, seed: int = 0, hot: float = _HOT
) -> Schedule:
    """Returns the best schedule found by simulated annealing (Kirkpatrick et al., 1983).

    Equal arguments give equal schedules.

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

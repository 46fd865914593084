"""The simulator as one loop over flat values; it can resume from a state of an earlier run.

It says of a schedule what `simulate` says, without a record of each transfer, and in less time. A
search changes a schedule a little and asks again: what happens before the first event that a change
can touch is the same as before, so the run continues from a state saved before that event, and it
ends as soon as it is certain to take longer than a limit.

Its functions are in the part of Python that Numba compiles, so they have no classes but named
tuples of flat values. The operations of a processor are a linked list in the planned order. They
finish in that order, so the next event is one of the processors' first operations that have started
and not finished. Loops read fields once, into locals: otherwise they take twice as long.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jflow.compiler.schedule.compact import Compact, Values
from jflow.compiler.schedule.schedule import Schedule
from jflow.compiler.schedule.sends import port_times

MOST_SAVED = 8
"""States that are saved during a run, at equal numbers of events."""


class Chains(NamedTuple):
    """A schedule as linked lists; -1 ends them.

    Attributes:
      devices, order, position: i64[n]; `position` is the inverse of `order`.
      following, previous: i64[n], the next operation on the same processor, and the one before.
      first: i64[processors], where the lists begin.
    """

    devices: Values
    order: Values
    position: Values
    following: Values
    previous: Values
    first: Values


class RunState(NamedTuple):
    """The state of a simulated run, which ends as its result.

    Attributes:
      start, finish: f64[n], of each operation.
      launched, ended: i64[n], the number of the event at which the start of each operation was
        known, 0 before all events, and of its end.
      ready: f64[n], when the last input known so far is there; `late`: i64[n], the producer of it.
      missing: i64[n], how many inputs are not known yet.
      free: f64[processors]; outgoing, incoming: f64[p], when ports are free.
      to_launch, to_end: i64[processors], the first operation whose start is not known yet, and the
        first that is known and has not ended.
      arrived: f64[p], sent_to: i64[p], where the tensor of an edge is, and of which edge.
    """

    start: Values
    finish: Values
    launched: Values
    ended: Values
    ready: Values
    late: Values
    missing: Values
    free: Values
    outgoing: Values
    incoming: Values
    to_launch: Values
    to_end: Values
    arrived: Values
    sent_to: Values


class SavedRun(NamedTuple):
    """Saved states of the accepted run and of the run being tried: [2, MOST_SAVED, …].

    Attributes:
      which: i64[MOST_SAVED], which of the two is the accepted one.
      interval: i64[1], events between two states.
    """

    which: Values
    interval: Values
    ready: Values
    late: Values
    missing: Values
    free: Values
    outgoing: Values
    incoming: Values
    to_launch: Values
    to_end: Values


def new_plan(flat: Compact, schedule: Schedule, *, arrays: bool) -> Chains:
    """Converts a schedule to linked lists."""
    position = [0] * flat.n
    following, previous = [-1] * flat.n, [-1] * flat.n
    first, last = [-1] * flat.n_processors, [-1] * flat.n_processors
    for i, operation in enumerate(schedule.order):
        position[operation] = i
        processor = int(flat.processor[schedule.devices[operation]])
        before = last[processor]
        if before < 0:
            first[processor] = operation
        else:
            following[before], previous[operation] = operation, before
        last[processor] = operation
    lists = ([*schedule.devices], [*schedule.order], position, following, previous, first)
    return Chains(*(np.array(values, np.int64) if arrays else values for values in lists))


def new_run(flat: Compact, *, arrays: bool) -> RunState:
    """Allocates the state of a run."""
    n, p, k = flat.n, flat.p, flat.n_processors
    sizes = (n, n, n, n, n, n, n, k, p, p, k, k, p, p)
    integers = {2, 3, 5, 6, 10, 11, 13}
    return RunState(*(_zeros((size,), i in integers, arrays) for i, size in enumerate(sizes)))


def new_saved(flat: Compact, *, arrays: bool, least_interval: int = 16) -> SavedRun:
    """Allocates saved states."""
    n, p, k = flat.n, flat.p, flat.n_processors
    interval = max(least_interval, -(-n // (MOST_SAVED + 1)))
    sizes, integers = (n, n, n, k, p, p, k, k), {1, 2, 6, 7}
    n_states = MOST_SAVED if interval <= n else 0
    return SavedRun(
        _zeros((MOST_SAVED,), True, arrays),
        np.array([interval]) if arrays else [interval],
        *(_zeros((2, n_states, size), i in integers, arrays) for i, size in enumerate(sizes)),
    )


def _zeros(shape: Sequence[int], is_integral: bool, arrays: bool) -> Any:
    zeros = np.zeros(shape, np.int64 if is_integral else np.float64)
    return zeros if arrays else zeros.tolist()


def begin_run(flat: Compact, plan: Chains, run: RunState) -> None:
    """Resets a run to the state before the first event."""
    run.missing[:] = flat.missing
    run.to_launch[:] = plan.first
    for i in range(flat.n):
        run.ready[i] = 0.0
        run.late[i] = -1
    for processor in range(flat.n_processors):
        run.free[processor] = 0.0
        run.to_end[processor] = -1
    for device in range(flat.p):
        run.outgoing[device] = 0.0
        run.incoming[device] = 0.0


def restore_run(run: RunState, accepted: RunState, saved: SavedRun, number: int) -> None:
    """Restores the state of the accepted run from saved state `number`."""
    run.start[:] = accepted.start
    run.finish[:] = accepted.finish
    run.launched[:] = accepted.launched
    run.ended[:] = accepted.ended
    which = saved.which[number]
    run.ready[:] = saved.ready[which][number]
    run.late[:] = saved.late[which][number]
    run.missing[:] = saved.missing[which][number]
    run.free[:] = saved.free[which][number]
    run.outgoing[:] = saved.outgoing[which][number]
    run.incoming[:] = saved.incoming[which][number]
    run.to_launch[:] = saved.to_launch[which][number]
    run.to_end[:] = saved.to_end[which][number]


def _save(run: RunState, saved: SavedRun, number: int) -> None:
    which = 1 - saved.which[number]
    saved.ready[which][number][:] = run.ready
    saved.late[which][number][:] = run.late
    saved.missing[which][number][:] = run.missing
    saved.free[which][number][:] = run.free
    saved.outgoing[which][number][:] = run.outgoing
    saved.incoming[which][number][:] = run.incoming
    saved.to_launch[which][number][:] = run.to_launch
    saved.to_end[which][number][:] = run.to_end


def replay(  # noqa: C901, PLR0912 - one loop: a call an event takes four times as long
    flat: Compact, plan: Chains, run: RunState, saved: SavedRun, done: int, limit: float
) -> float:
    """Simulates from the state in `run`, after `done` events, to the end.

    Returns:
      The makespan; infinity as soon as it is certain to be more than `limit`.
    """
    seconds, tail, processors = flat.seconds, flat.tail, flat.processor
    outputs, uses, users = flat.outputs, flat.uses, flat.users
    devices, position, following = plan.devices, plan.position, plan.following
    start, finish, launched, ended = run.start, run.finish, run.launched, run.ended
    ready, late, missing, free = run.ready, run.late, run.missing, run.free
    to_launch, to_end, arrived, sent_to = run.to_launch, run.to_end, run.arrived, run.sent_to
    interval, first = saved.interval[0], done
    ends = _ends(flat, plan, run)
    # Processors whose next operation has all its inputs.
    may_launch = list(range(flat.n_processors if done == 0 else 0))
    while True:
        while may_launch:
            processor = may_launch.pop()
            operation, time = to_launch[processor], free[processor]
            while operation >= 0 and missing[operation] == 0:
                start[operation] = max(time, ready[operation])
                time = start[operation] + seconds[operation][devices[operation]]
                if time + tail[operation] > limit:
                    return math.inf
                finish[operation], launched[operation] = time, done
                if to_end[processor] < 0:
                    to_end[processor] = operation
                    heapq.heappush(ends, (time, position[operation], processor))
                operation = following[operation]
            to_launch[processor], free[processor] = operation, time
        if done % interval == 0 and done > first and done <= MOST_SAVED * interval:
            _save(run, saved, done // interval - 1)
        if not ends:
            return _largest(free)
        time, _, processor = heapq.heappop(ends)
        operation, done = to_end[processor], done + 1
        after = following[operation]
        to_end[processor] = -1
        if after >= 0 and after != to_launch[processor]:  # which runs already
            to_end[processor] = after
            heapq.heappush(ends, (finish[after], position[after], processor))
        ended[operation], source = done, devices[operation]
        for edge in range(outputs[operation], outputs[operation + 1]):
            if uses[edge + 1] - uses[edge] > 1:
                _sort(users, position, uses[edge], uses[edge + 1])
            for user in users[uses[edge] : uses[edge + 1]]:
                target, arrival = devices[user], time
                if target != source:
                    if sent_to[target] != edge:
                        _send(flat, run, edge, source, target, time)
                    arrival = arrived[target]
                if arrival > ready[user] or late[user] < 0:
                    ready[user], late[user] = max(arrival, ready[user]), operation
                missing[user] -= 1
                if missing[user] == 0 and to_launch[processors[target]] == user:
                    may_launch.append(processors[target])


def _ends(flat: Compact, plan: Chains, run: RunState) -> Any:
    """Returns time, position and processor of the next completion on each busy processor."""
    ends = [(0.0, 0, 0)]
    ends.pop()
    for processor in range(flat.n_processors):
        operation = run.to_end[processor]
        if operation >= 0:
            heapq.heappush(ends, (run.finish[operation], plan.position[operation], processor))
    for device in range(flat.p):
        run.sent_to[device] = -1
    return ends


def _send(flat: Compact, run: RunState, edge: int, source: int, target: int, time: float) -> None:
    sending = flat.n_bytes[edge] * flat.byte_seconds[source][target]
    enters = time
    if flat.has_ports:
        incoming = run.outgoing if flat.half_duplex else run.incoming
        busy = sending * flat.port_share
        leaves, enters = port_times(time, run.outgoing[source], incoming[target], flat.is_buffered)
        run.outgoing[source] = leaves + busy
        incoming[target] = enters + busy
    run.arrived[target] = enters + sending + flat.latency[source][target]
    run.sent_to[target] = edge


def _largest(values: Values) -> float:
    largest = 0.0
    for value in values:
        largest = max(largest, value)
    return largest


def _sort(users: Values, position: Values, first: int, end: int) -> None:
    """Sorts the consumers of an edge by position (insertion sort; they are nearly sorted)."""
    for i in range(first + 1, end):
        user = users[i]
        j = i
        while j > first and position[users[j - 1]] > position[user]:
            users[j] = users[j - 1]
            j -= 1
        users[j] = user


HELPERS = (_ends, port_times, _send, _largest, _sort, _save, begin_run, restore_run)
"""What `replay` calls, or what calls it does; see `compiled`."""

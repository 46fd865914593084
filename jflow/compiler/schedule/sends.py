"""The transfers of a schedule as flat tables, and the times at which ports serve them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jflow.compiler.schedule.problem import Problem
from jflow.compiler.schedule.schedule import Schedule, positions

Integers = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]


class Sends(NamedTuple):
    """The transfers of a schedule, ordered by producer; `operations` are positions in its order.

    What a device makes and uses itself is there in time, because it runs its operations in order.
    Of the operations of a device that use one tensor, only the first waits for it: the others run
    after that one. So each transfer has one operation that waits.

    Attributes:
      first: i64[operations + 1]; the transfers of the operation at position i are `first[i]` to
        `first[i + 1]`.
      edge: i64[transfers], the index of what is sent.
      target: i64[transfers], the device that it is sent to.
      waiting: i64[transfers], the position of the operation that waits for it.
      seconds, latency: f64[transfers], the time of its bytes, and what comes on top.
    """

    first: Integers
    edge: Integers
    target: Integers
    waiting: Integers
    seconds: Floats
    latency: Floats


def sends_of(problem: Problem, schedule: Schedule) -> Sends:
    """Returns the transfers of a valid schedule.

    A tensor is sent once to each other device that uses it, in the order of the operations there
    that use it first.
    """
    graph, costs = problem.graph, problem.costs
    n, n_devices = len(graph), len(problem.devices)
    devices, position = np.array(schedule.devices, np.int64), positions(schedule)
    uses = graph.uses
    source, target = devices[uses.producer], devices[uses.consumer]
    between = np.flatnonzero(source != target)
    edge, target = uses.edge[between], target[between]
    producer, waiting = position[uses.producer[between]], position[uses.consumer[between]]
    # The first use of each edge on each device.
    order = np.lexsort((waiting, edge * n_devices + target))
    pair = (edge * n_devices + target)[order]
    order = order[np.diff(pair, prepend=-1) != 0]
    order = order[np.lexsort((waiting[order], edge[order], producer[order]))]
    edge, target, producer = edge[order], target[order], producer[order]
    source = source[between][order]
    first = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(producer, minlength=n), out=first[1:])
    return Sends(
        first,
        edge,
        target,
        waiting[order],
        graph.sizes[edge] * costs.byte_seconds[source, target],
        costs.latency[source, target],
    )


def port_times(
    time: float, outgoing: float, incoming: float, is_buffered: bool
) -> tuple[float, float]:
    """Returns when a transfer leaves its sender's port and enters its receiver's, in seconds.

    A port serves one transfer at a time, in the order of the calls: the caller adds the time for
    which the transfer occupies the ports to what this returns, and so has when they are free.
    Without buffers a transfer that waits for its receiver holds its sender's port.

    Numba compiles this (`compiled`); comparisons are written out, because calls take longer.

    Args:
      time: when the transfer is requested.
      outgoing, incoming: when the ports of the sender and of the receiver are free.
      is_buffered: whether the sender's port is free for other transfers meanwhile.
    """
    leaves = outgoing if outgoing > time else time
    enters = incoming if incoming > leaves else leaves
    return (leaves if is_buffered else enters), enters

"""A problem as flat arrays or lists, for inner loops that avoid attribute access.

What reads them runs in two ways: interpreted, on lists, and compiled by Numba, on arrays of the
same values. Both do the same arithmetic in the same order, so their results are equal to the bit.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import accumulate, chain
from typing import Any, NamedTuple

import numpy as np

from jflow.compiler.schedule.problem import (
    BUFFERED,
    UNLIMITED,
    Problem,
    class_members,
    class_sums,
    classes_of,
    resident_of,
    tails,
)

Values = Any
"""Floats or integers: a list, or an array where loops are compiled."""


class Compact(NamedTuple):
    """The parts of a problem that a simulation reads, for `n` operations and `p` devices.

    Attributes:
      seconds: f64[n, p]; `latency`, `byte_seconds`: f64[p, p]; `processor`: i64[p].
      outputs: i64[n + 1]; the edges of operation i are `outputs[i]` to `outputs[i + 1]`.
      uses: i64[edges + 1]; the consumers of edge e are `users[uses[e]]` to `users[uses[e + 1]]`.
      n_bytes: f64[edges].
      missing: i64[n], how many edges each operation waits for.
      before, after: i64[n + 1], where the predecessors and successors of each operation begin in
        `predecessors` and `successors`.
      tail: f64[n], seconds that must follow each operation at least.
      class_of: i64[n], numbers that leave none out; `members[first_member[c]]` and those after it
        are the operations of class c.
      needed: f64[classes], bytes that a class keeps; `allowed`: i64[classes, p], 1 where it may go.
    """

    n: int
    p: int
    n_processors: int
    has_ports: bool
    is_buffered: bool
    half_duplex: bool
    port_share: float
    seconds: Values
    latency: Values
    byte_seconds: Values
    processor: Values
    outputs: Values
    uses: Values
    users: Values
    n_bytes: Values
    missing: Values
    before: Values
    predecessors: Values
    after: Values
    successors: Values
    tail: Values
    class_of: Values
    first_member: Values
    members: Values
    needed: Values
    allowed: Values


def compact(problem: Problem, *, arrays: bool = False) -> Compact:
    """Flattens a problem to lists, or to arrays for compiled functions."""
    graph, costs = problem.graph, problem.costs
    edges = [graph.edges[number] for number in chain.from_iterable(graph.outputs)]
    by_class = class_members(problem)
    members = [*by_class.values()]
    numbers = {number: i for i, number in enumerate(by_class)}
    flat = Compact(
        n=len(graph),
        p=len(problem.devices),
        n_processors=costs.n_processors,
        has_ports=costs.network != UNLIMITED,
        is_buffered=costs.network == BUFFERED,
        half_duplex=costs.half_duplex,
        port_share=float(costs.port_share),
        seconds=costs.seconds.tolist(),
        latency=costs.latency.tolist(),
        byte_seconds=costs.byte_seconds.tolist(),
        processor=[*costs.processor_of],
        outputs=_starts(graph.outputs),
        uses=_starts([edge.consumers for edge in edges]),
        users=[*chain.from_iterable(edge.consumers for edge in edges)],
        n_bytes=[float(edge.n_bytes) for edge in edges],
        missing=[len(inputs) for inputs in graph.inputs],
        before=_starts(graph.predecessors),
        predecessors=[*chain.from_iterable(graph.predecessors)],
        after=_starts(graph.successors),
        successors=[*chain.from_iterable(graph.successors)],
        tail=tails(graph, costs.seconds.min(axis=1).tolist()),
        class_of=[numbers[number] for number in classes_of(problem)],
        first_member=_starts(members),
        members=[*chain.from_iterable(members)],
        needed=[*class_sums(problem, resident_of(problem)).values()],
        allowed=_allowed(problem, numbers),
    )
    if not arrays:
        return flat
    arrays_by_name: dict[str, Any] = {
        name: _array(name, value, flat.p)
        for name, value in flat._asdict().items()
        if isinstance(value, list)
    }
    return flat._replace(**arrays_by_name)


def _allowed(problem: Problem, numbers: Iterable[int]) -> list[list[int]]:
    every = [1] * len(problem.devices)
    allowed = problem.constraints.allowed
    rows = {
        number: [int(d in devices) for d in range(len(every))]
        for number, devices in allowed.items()
    }
    return [rows.get(number, every) for number in numbers]


def _starts(rows: Sequence[Sequence[int]]) -> list[int]:
    return [0, *accumulate(map(len, rows))]


_FLOATS = ("seconds", "latency", "byte_seconds", "n_bytes", "tail", "needed")


def _array(name: str, values: list[Any], n_devices: int) -> np.ndarray[Any, Any]:
    array = np.array(values, np.float64 if name in _FLOATS else np.int64)
    is_table = name in ("seconds", "latency", "byte_seconds", "allowed")
    return array.reshape(-1, n_devices) if is_table else array


@cache
def can_compile() -> bool:
    """Whether Numba is installed; does not import it."""
    return importlib.util.find_spec("numba") is not None


@cache
def compiled(
    function: Callable[..., Any], helpers: tuple[Callable[..., Any], ...]
) -> Callable[..., Any]:
    """Compiles a function with Numba, at its first call for the types of its arguments.

    Machine code is kept beside the source, or in the user's cache folder, for later processes.

    Args:
      function: what to compile.
      helpers: functions that it calls.
    """
    numba = importlib.import_module("numba")
    extending = importlib.import_module("numba.extending")
    for helper in helpers:
        extending.register_jitable(helper)
    machine_code: Callable[..., Any] = numba.njit(cache=True)(function)
    return machine_code

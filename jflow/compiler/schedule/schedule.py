"""Schedules: a device for each operation, and the order in which devices run them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from operator import index
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np

from jflow.compiler.schedule.graph import OperationGraph
from jflow.compiler.schedule.problem import (
    Constraints,
    Costs,
    Problem,
    capacity_of,
    classes_of,
    resident_of,
)
from jflow.errors import InvalidArgumentError

T = TypeVar("T")


def once_for_each(fun: Callable[[Problem], T]) -> Callable[[Problem], T]:
    """Caches a function of a problem by its graph and costs; constraints are ignored.

    It is forgotten with the graph or the costs. Callers do not change it.
    """
    cache_by_costs: WeakKeyDictionary[Costs, WeakKeyDictionary[OperationGraph, T]] = (
        WeakKeyDictionary()
    )

    @wraps(fun)
    def find(problem: Problem) -> T:
        by_graph = cache_by_costs.setdefault(problem.costs, WeakKeyDictionary())
        if problem.graph not in by_graph:
            by_graph[problem.graph] = fun(problem)
        return by_graph[problem.graph]

    return find


P = ParamSpec("P")


@dataclass(frozen=True)
class Schedule:
    """A device for each operation, and an order.

    Attributes:
      devices: index of the device of each operation.
      order: all operations, each after those whose results it uses; a device runs its own in this
        order.
    """

    devices: tuple[int, ...]
    order: tuple[int, ...]


PlaceFunction = Callable[..., "Schedule | Mapping[Any, Any]"]
"""A strategy: `place(graph, devices, costs, constraints)`.

It returns a `Schedule`, or a mapping from each of `graph.operations` to one of `devices`; the
operations of a mapping run in the order of their longest path to the end.
"""


class Scheduler(Protocol[P]):
    """A built-in strategy: a `PlaceFunction` that takes its options by keyword."""

    __name__: str

    def __call__(
        self,
        graph: OperationGraph,
        devices: Sequence[Hashable],
        costs: Costs,
        constraints: Constraints,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Schedule:
        """Schedules a problem."""


def strategy(fun: Callable[Concatenate[Problem, P], Schedule]) -> Scheduler[P]:
    """Turns a function of a problem into a strategy, which takes the problem's parts."""

    @wraps(fun)
    def place(
        graph: OperationGraph,
        devices: Sequence[Hashable],
        costs: Costs,
        constraints: Constraints,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Schedule:
        return fun(Problem(graph, devices, costs, constraints), *args, **kwargs)

    return cast("Scheduler[P]", place)


def variant(place: PlaceFunction, suffix: str, fun: Callable[[Problem], Schedule]) -> Scheduler[[]]:
    """Turns a function of a problem that calls another strategy into a strategy of its own name."""
    fun.__name__ = fun.__qualname__ = f"{name_of(place)}+{suffix}"
    return strategy(fun)


def scheduled(problem: Problem, place: PlaceFunction) -> Schedule:
    """Runs a strategy on a problem and checks its schedule.

    Args:
      problem: the operations, devices, costs and constraints.
      place: one of `jflow.lab.STRATEGIES`, or a function of its form,
        `place(graph, devices, costs, constraints)`.

    Raises:
      InvalidArgumentError: if the answer has an unknown operation or device, forgets an operation,
        runs one before its inputs, or breaks a constraint. The message names the strategy.
      Exception: as the strategy does, with a note that names it.
    """
    name = name_of(place)
    answer = _answer(problem, place, name)
    if not isinstance(answer, Schedule):
        answer = _from_mapping(problem, answer, name)
    check(problem, answer, name)
    return answer


def _answer(problem: Problem, place: PlaceFunction, name: str) -> Any:
    graph, devices, costs, constraints = problem
    # Copies of what a strategy could change, because its answer is checked against the originals.
    own_constraints = replace(constraints, allowed=dict(constraints.allowed))
    try:
        return place(graph, [*devices], costs, own_constraints)
    except Exception as error:
        error.add_note(f"raised by the placement strategy {name!r}")
        raise


def name_of(place: PlaceFunction) -> str:
    """Returns the name of a strategy for messages and tables."""
    return getattr(place, "__name__", "") or repr(place)


def _from_mapping(problem: Problem, answer: Any, name: str) -> Schedule:
    if not isinstance(answer, Mapping):
        raise InvalidArgumentError(
            f"strategy {name} gives a device for each operation as a mapping, or a Schedule; "
            f"got {type(answer).__name__}{_repair(answer)}"
        )
    numbers = {device: number for number, device in enumerate(problem.devices)}
    devices = []
    for operation in problem.graph.operations:
        if operation not in answer:
            raise InvalidArgumentError(f"strategy {name} gives no device for {operation}")
        number = _number(numbers, answer[operation])
        if number is None:
            raise InvalidArgumentError(
                f"strategy {name} places {operation} on {answer[operation]!r}, which is not one of "
                f"the devices {[*map(str, problem.devices)]}"
            )
        devices.append(number)
    if len(answer) > len(devices):
        operation_set = {*problem.graph.operations}
        foreign = next(each for each in answer if each not in operation_set)
        raise InvalidArgumentError(
            f"strategy {name} places {foreign!r}, which is not an operation of this graph"
        )
    return by_rank(problem, devices)


def _number(numbers: Mapping[Hashable, int], device: Any) -> int | None:
    try:
        return numbers.get(device)
    except TypeError:  # it is not hashable, so it is not a device
        return None


def _repair(answer: Any) -> str:
    """Returns advice for the error about a result of the wrong type; closes a coroutine."""
    if inspect.iscoroutine(answer):
        answer.close()
        return "; a strategy is called without an event loop, so it cannot be an async function"
    return "; it has no return statement that is reached" if answer is None else ""


def by_rank(problem: Problem, devices: Sequence[int]) -> Schedule:
    """Returns a schedule that runs operations by upward rank, the largest first."""
    return Schedule(tuple(devices), rank_order(problem))


@once_for_each
def rank_order(problem: Problem) -> tuple[int, ...]:
    """Returns the operations by upward rank, the largest first, each after its inputs.

    No rank is less than that of a successor, and of equal ones the producer comes first.
    """
    ranks, order = np.array(upward_ranks(problem)), np.array(problem.graph.order, np.int64)
    return tuple(order[np.argsort(-ranks[order], kind="stable")].tolist())


@once_for_each
def upward_ranks(problem: Problem) -> list[float]:
    """Returns the seconds from each operation's start to the end along the longest path.

    Times are means over the devices and over the links between different ones (Topcuoglu, Hariri
    and Wu, "Performance-effective and low-complexity task scheduling for heterogeneous computing",
    2002).
    """
    graph, mean = problem.graph, problem.costs.mean_seconds
    sent = mean_transfers(problem)
    consumers = [edge.consumers for edge in graph.edges]
    ranks = [0.0] * len(graph)
    for operation in reversed(graph.order):
        longest = 0.0
        for number in graph.outputs[operation]:
            for consumer in consumers[number]:
                after = sent[number] + ranks[consumer]
                if after > longest:  # noqa: PLR1730 - a call takes longer
                    longest = after
        ranks[operation] = mean[operation] + longest
    return ranks


@once_for_each
def mean_transfers(problem: Problem) -> list[float]:
    """Returns for each edge the mean seconds between two different devices."""
    latency, byte_seconds = problem.costs.mean_link
    sent: list[float] = (latency + problem.graph.sizes * byte_seconds).tolist()
    return sent


def check(problem: Problem, schedule: Schedule, name: str) -> None:
    """Raises InvalidArgumentError if a schedule is not valid for this problem."""
    n, n_devices = len(problem.graph), len(problem.devices)
    if len(schedule.devices) != n or not _is_permutation(schedule.order, n):
        raise InvalidArgumentError(
            f"strategy {name} must give each of {n} operations one device and one position, got "
            f"{len(schedule.devices)} devices and {len({*map(str, schedule.order)})} positions"
        )
    for operation, device in enumerate(schedule.devices):
        if not _is_index(device, n_devices):
            raise InvalidArgumentError(
                f"strategy {name} places {_label(problem, operation)} on the unknown device "
                f"{device!r}; the devices of a Schedule are numbers from 0 to {n_devices - 1}"
            )
    _check_order(problem, schedule, name)
    _check_classes(problem, schedule, name)
    _check_memory(problem, schedule, name)


def _is_permutation(order: Sequence[Any], n: int) -> bool:
    try:
        return sorted(map(index, order)) == [*range(n)]
    except TypeError:
        return False


def _is_index(value: Any, n: int) -> bool:
    try:
        return 0 <= index(value) < n
    except TypeError:
        return False


def _label(problem: Problem, operation: int) -> Hashable:
    return problem.graph.operations[operation]


def _check_order(problem: Problem, schedule: Schedule, name: str) -> None:
    uses, position = problem.graph.uses, positions(schedule)
    early = np.flatnonzero(position[uses.producer] >= position[uses.consumer])
    if len(early):
        producer, consumer = int(uses.producer[early[0]]), int(uses.consumer[early[0]])
        raise InvalidArgumentError(
            f"strategy {name} runs {_label(problem, consumer)} before "
            f"{_label(problem, producer)}, whose result it uses"
        )


def positions(schedule: Schedule) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Returns the position of each operation in the order of a schedule."""
    position = np.empty(len(schedule.order), np.int64)
    position[np.array(schedule.order, np.int64)] = np.arange(len(schedule.order))
    return position


def _check_classes(problem: Problem, schedule: Schedule, name: str) -> None:
    allowed = problem.constraints.allowed
    if not problem.constraints.classes and not allowed:
        return
    seen: dict[int, int] = {}
    for operation, (number, device) in enumerate(
        zip(classes_of(problem), schedule.devices, strict=True)
    ):
        first = seen.setdefault(number, operation)
        if device != schedule.devices[first]:
            raise InvalidArgumentError(
                f"strategy {name} places {_label(problem, first)} and "
                f"{_label(problem, operation)} on different devices; they are colocated"
            )
        if first == operation and device not in allowed.get(number, (device,)):
            raise InvalidArgumentError(
                f"strategy {name} places {_label(problem, operation)} on "
                f"{problem.devices[device]}; it may go to "
                f"{[str(problem.devices[each]) for each in allowed[number]]}"
            )


def _check_memory(problem: Problem, schedule: Schedule, name: str) -> None:
    if not problem.constraints.capacity:
        return
    used = [0.0] * len(problem.devices)
    for device, n_bytes in zip(schedule.devices, resident_of(problem), strict=True):
        used[device] += n_bytes
    for device, capacity in enumerate(capacity_of(problem)):
        if used[device] > capacity * (1 + 1e-9):
            raise InvalidArgumentError(
                f"strategy {name} keeps {used[device]:.0f} bytes on {problem.devices[device]}, "
                f"{used[device] - capacity:.0f} more than it can"
            )

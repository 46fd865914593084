"""What a strategy gives: a device for each operation, and the order in which devices run them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from operator import index
from typing import Any, Concatenate, ParamSpec, Protocol, cast

from jflow.errors import InvalidArgumentError
from jflow.schedule.graph import OperationGraph
from jflow.schedule.problem import (
    Constraints,
    Costs,
    Problem,
    capacity_of,
    classes_of,
    resident_of,
)

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
    """A strategy that ships: `PlaceFunction`, with options by keyword."""

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
        """The schedule of a problem."""


def strategy(fun: Callable[Concatenate[Problem, P], Schedule]) -> Scheduler[P]:
    """Makes a strategy, which takes the parts of a problem, of a function of the problem."""

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

    return cast(Scheduler[P], place)


def scheduled(problem: Problem, place: PlaceFunction) -> Schedule:
    """What a strategy gives for a problem, checked.

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
    given = replace(constraints, allowed=dict(constraints.allowed))
    try:
        return place(graph, [*devices], costs, given)
    except Exception as error:
        error.add_note(f"raised by the placement strategy {name!r}")
        raise


def name_of(place: PlaceFunction) -> str:
    """How messages and tables call a strategy."""
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
        known = {*problem.graph.operations}
        foreign = next(each for each in answer if each not in known)
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
    """What to do about an answer of the wrong type."""
    if inspect.iscoroutine(answer):
        answer.close()
        return "; a strategy is called without an event loop, so it cannot be an async function"
    return "; it has no return statement that is reached" if answer is None else ""


def by_rank(problem: Problem, devices: Sequence[int]) -> Schedule:
    """The schedule that runs first what the longest path to the end begins with."""
    ranks = upward_ranks(problem)
    positions = {operation: i for i, operation in enumerate(problem.graph.order)}
    order = sorted(range(len(ranks)), key=lambda i: (-ranks[i], positions[i]))
    return Schedule(tuple(devices), tuple(order))


def upward_ranks(problem: Problem) -> list[float]:
    """Seconds from the start of each operation to the end along the longest path.

    Times are means over the devices and over the links between different ones (Topcuoglu, Hariri
    and Wu, "Performance-effective and low-complexity task scheduling for heterogeneous computing",
    2002).
    """
    graph, costs = problem.graph, problem.costs
    mean = costs.mean_seconds
    ranks = [0.0] * len(graph)
    for operation in reversed(graph.order):
        longest = 0.0
        for number in graph.outputs[operation]:
            edge = graph.edges[number]
            sent = costs.mean_transfer(edge.n_bytes)
            for consumer in edge.consumers:
                longest = max(longest, sent + ranks[consumer])
        ranks[operation] = mean[operation] + longest
    return ranks


def check(problem: Problem, schedule: Schedule, name: str) -> None:
    """Raises InvalidArgumentError if a strategy's schedule is not one of this problem."""
    n, n_devices = len(problem.graph), len(problem.devices)
    is_order = all(_is_index(position, n) for position in schedule.order)
    if len(schedule.devices) != n or not is_order or sorted(schedule.order) != [*range(n)]:
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


def _is_index(value: Any, n: int) -> bool:
    try:
        return 0 <= index(value) < n
    except TypeError:
        return False


def _label(problem: Problem, operation: int) -> Hashable:
    return problem.graph.operations[operation]


def _check_order(problem: Problem, schedule: Schedule, name: str) -> None:
    position = {operation: i for i, operation in enumerate(schedule.order)}
    for edge in problem.graph.edges:
        for consumer in edge.consumers:
            if position[edge.producer] >= position[consumer]:
                raise InvalidArgumentError(
                    f"strategy {name} runs {_label(problem, consumer)} before "
                    f"{_label(problem, edge.producer)}, whose result it uses"
                )


def _check_classes(problem: Problem, schedule: Schedule, name: str) -> None:
    seen: dict[int, int] = {}
    for operation, number in enumerate(classes_of(problem)):
        first = seen.setdefault(number, operation)
        device = schedule.devices[operation]
        if device != schedule.devices[first]:
            raise InvalidArgumentError(
                f"strategy {name} places {_label(problem, first)} and "
                f"{_label(problem, operation)} on different devices; they are colocated"
            )
        allowed = problem.constraints.allowed.get(number)
        if allowed is not None and device not in allowed:
            raise InvalidArgumentError(
                f"strategy {name} places {_label(problem, operation)} on "
                f"{problem.devices[device]}; it may go to "
                f"{[str(problem.devices[each]) for each in allowed]}"
            )


def _check_memory(problem: Problem, schedule: Schedule, name: str) -> None:
    used = [0.0] * len(problem.devices)
    for device, n_bytes in zip(schedule.devices, resident_of(problem), strict=True):
        used[device] += n_bytes
    for device, capacity in enumerate(capacity_of(problem)):
        if used[device] > capacity * (1 + 1e-9):
            raise InvalidArgumentError(
                f"strategy {name} keeps {used[device]:.0f} bytes on {problem.devices[device]}, "
                f"{used[device] - capacity:.0f} more than it can"
            )

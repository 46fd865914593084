"""The placement problem: a graph, devices, costs and constraints; and its lower bound."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from jflow.compiler.schedule.graph import OperationGraph
from jflow.errors import InvalidArgumentError, ResourceExhaustedError

Matrix = np.ndarray[Any, np.dtype[np.float64]]

ONE_PORT = "one-port"
"""A device sends one tensor at a time and receives one at a time, in the order of the requests."""

BUFFERED = "buffered"
"""As "one-port", but a tensor that waits for its receiver's port does not hold up what its sender
sends to other devices. That is what jflow's runtime does: every task has a
connection to every other one, and what one of them cannot take yet waits in that connection."""

UNLIMITED = "unlimited"
"""Transfers do not slow each other: the network model of most of the scheduling literature."""

NETWORKS = (ONE_PORT, BUFFERED, UNLIMITED)


@dataclass(frozen=True, eq=False)
class Costs:
    """Costs of operations and transfers, in seconds.

    Attributes:
      seconds: f64[operations, devices], the time that each operation takes on each device; of one
        in a loop that of all iterations together.
      latency: f64[devices, devices] in seconds, what a transfer takes in addition to its bytes.
      byte_seconds: f64[devices, devices], seconds a byte from one device to another.
      network: how transfers share the ports of a device, one of `NETWORKS`.
      processors: for each device the number of what it computes with; devices of one number, such
        as several CPU devices of one process, run one operation at a time between them. Empty if
        each device has a processor of its own.
      port_share: the part of the time of a transfer's bytes for which it occupies the ports, from 0
        to 1; not with "unlimited". It is 1 unless a calibration has found that transfers overlap.
      half_duplex: whether a device that sends cannot receive at the same time; not with
        "unlimited".
      overhead: f64[devices, devices] in seconds, what each message takes of the processors of both
        of its devices, at most half of its latency; None for nothing. It is the *o* of LogP (Culler
        et al., "LogP: towards a realistic model of parallel computation", 1993).
      processor_share: f64[devices, devices], the part of the time of a transfer's bytes for which
        the processors of both of its devices are busy with it, from 0 to 1; None for nothing.
      step_seconds: what every step takes in addition, whatever its placement.
      task_seconds: what each task beyond the master's adds to that if it takes part.
      tasks: for each device the number of its task, 0 for the master's. Empty if that is not known,
        so that no task adds anything.
      are_estimates: whether a real step may take longer or shorter than these costs say.
      work_error: the part by which operations may all take less than estimated, below 1.
      message_error: the part by which messages may all take more than estimated.
      in_stages: whether the operations of a device between two crossings run as one program, as in
        jflow's runtime (`jflow.compiler.schedule.stages`), instead of each as soon as it can.

    Raises:
      InvalidArgumentError: if the shapes do not agree, or a cost is negative or not finite.
    """

    seconds: Matrix
    latency: Matrix
    byte_seconds: Matrix
    network: str = ONE_PORT
    processors: tuple[int, ...] = ()
    port_share: float = 1.0
    half_duplex: bool = False
    overhead: Matrix | None = None
    processor_share: Matrix | None = None
    step_seconds: float = 0.0
    task_seconds: float = 0.0
    tasks: tuple[int, ...] = ()
    are_estimates: bool = False
    work_error: float = 0.0
    message_error: float = 0.0
    in_stages: bool = False

    def __post_init__(self) -> None:
        n_devices = self.seconds.shape[-1]
        for name in ("latency", "byte_seconds", "overhead", "processor_share"):
            values = getattr(self, name)
            if values is not None and values.shape != (n_devices, n_devices):
                raise InvalidArgumentError(
                    f"expected {name} of shape {(n_devices, n_devices)}, got {values.shape}"
                )
        for name in ("seconds", "latency", "byte_seconds", "overhead", "processor_share"):
            values = getattr(self, name)
            if values is not None and not (np.isfinite(values).all() and (values >= 0).all()):
                raise InvalidArgumentError(f"expected {name} that are finite and not negative")
        if self.processor_share is not None and (self.processor_share > 1).any():
            raise InvalidArgumentError("expected processor_share from 0 to 1")
        for name in ("processors", "tasks"):
            if len(getattr(self, name)) not in (0, n_devices):
                raise InvalidArgumentError(
                    f"expected {name} of {n_devices} devices, got {len(getattr(self, name))}"
                )
        if not (
            0 <= self.port_share <= 1
            and 0 <= self.step_seconds < math.inf
            and 0 <= self.task_seconds < math.inf
        ):
            raise InvalidArgumentError(
                "expected a port_share from 0 to 1, finite step_seconds and task_seconds, got "
                f"{self.port_share}, {self.step_seconds} and {self.task_seconds}"
            )
        if not (0 <= self.work_error < 1 and 0 <= self.message_error < math.inf):
            raise InvalidArgumentError(
                "expected a work_error from 0 to below 1 and a finite message_error that is not "
                f"negative, got {self.work_error} and {self.message_error}"
            )
        if self.network not in NETWORKS:
            raise InvalidArgumentError(
                f"expected one of {', '.join(NETWORKS)} as network, got {self.network!r}"
            )

    @property
    def arrays(self) -> list[Matrix]:
        """All arrays of these costs, by field."""
        every = (
            *(self.seconds, self.latency, self.byte_seconds),
            *(self.overhead, self.processor_share),
        )
        return [each for each in every if each is not None]

    def transfer(self, n_bytes: float, source: int, target: int) -> float:
        """Returns the seconds to transfer a tensor between devices, if nothing else is sent."""
        if source == target:
            return 0.0
        return float(self.latency[source, target] + n_bytes * self.byte_seconds[source, target])

    def at_worst(self) -> Costs:
        """Returns pessimistic costs: less work and costlier messages, by their estimated errors.

        That is what speaks most against more than one device. What all costs are off together does
        not matter, so one of each kind is enough.
        """
        more = 1 + self.message_error
        return replace(
            self,
            seconds=self.seconds * (1 - self.work_error),
            latency=self.latency * more,
            byte_seconds=self.byte_seconds * more,
            overhead=None if self.overhead is None else self.overhead * more,
            task_seconds=self.task_seconds * more,
            work_error=0.0,
            message_error=0.0,
        )

    def tasks_seconds(self, devices: Collection[int]) -> float:
        """Returns the seconds that the tasks of these devices, except task 0, add to a step."""
        if not self.tasks:
            return 0.0
        return self.task_seconds * len({self.tasks[device] for device in devices} - {0})

    @cached_property
    def processor_of(self) -> tuple[int, ...]:
        """The processor of each device, numbered consecutively from 0."""
        processors = self.processors or tuple(range(self.seconds.shape[-1]))
        numbers = {processor: i for i, processor in enumerate(dict.fromkeys(processors))}
        return tuple(numbers[processor] for processor in processors)

    @cached_property
    def n_processors(self) -> int:
        """The number of processors: how many operations can run at the same time."""
        return len(set(self.processor_of))

    @cached_property
    def mean_link(self) -> tuple[float, float]:
        """Mean latency and mean seconds per byte over all pairs of different devices."""
        n = len(self.latency)
        if n < 2:
            return 0.0, 0.0
        off = ~np.eye(n, dtype=bool)
        return float(self.latency[off].mean()), float(self.byte_seconds[off].mean())

    def mean_transfer(self, n_bytes: float) -> float:
        """Returns the mean seconds to transfer a tensor between two different devices."""
        latency, byte_seconds = self.mean_link
        return latency + n_bytes * byte_seconds

    @cached_property
    def mean_seconds(self) -> list[float]:
        """The mean seconds of each operation over the devices."""
        mean: list[float] = self.seconds.mean(axis=1).tolist()
        return mean


@dataclass(frozen=True, eq=False)
class Constraints:
    """Placement constraints: colocation, allowed devices, memory.

    Attributes:
      classes: for each operation the number of its colocation class; operations of one class go to
        one device. Empty if each operation is alone.
      allowed: for each class the indices of the devices that its operations may go to; a class
        that is missing may go to all.
      resident: f64[operations], bytes that each operation keeps on its device. Empty for none.
      capacity: f64[devices], bytes that a device can keep. Empty if there is no limit.
    """

    classes: tuple[int, ...] = ()
    allowed: dict[int, tuple[int, ...]] = field(default_factory=dict)
    resident: tuple[float, ...] = ()
    capacity: tuple[float, ...] = ()


class Problem(NamedTuple):
    """A placement problem: the arguments of a strategy.

    Attributes:
      graph: the operations.
      devices: what the devices are, by which strategies and messages identify them.
      costs: of operations and transfers.
      constraints: what every placement has to hold.
    """

    graph: OperationGraph
    devices: Sequence[Hashable]
    costs: Costs
    constraints: Constraints

    def checked(self) -> Problem:
        """Returns this problem. Raises InvalidArgumentError if its parts are inconsistent."""
        n_operations, n_devices = len(self.graph), len(self.devices)
        constraints = self.constraints
        if not n_devices:
            raise InvalidArgumentError("expected at least one device to place operations on")
        wanted = {
            "seconds of the costs": (self.costs.seconds.shape, (n_operations, n_devices)),
            "classes": (len(constraints.classes), n_operations),
            "resident bytes": (len(constraints.resident), n_operations),
            "capacities": (len(constraints.capacity), n_devices),
        }
        for name, (got, expected) in wanted.items():
            if got not in (expected, 0):
                raise InvalidArgumentError(f"expected {name} for {expected}, got {got}")
        for number, devices in constraints.allowed.items():
            if not devices or not set(devices) <= set(range(n_devices)):
                raise InvalidArgumentError(
                    f"expected devices 0 to {n_devices - 1} for class {number}, got {devices}"
                )
        return self


def classes_of(problem: Problem) -> tuple[int, ...]:
    """Returns the colocation class of each operation; its own index if nothing is colocated."""
    return problem.constraints.classes or tuple(range(len(problem.graph)))


def class_seconds(problem: Problem) -> dict[int, Matrix]:
    """Returns the total seconds of each class on each device, in order of class numbers."""
    numbers, rows = np.unique(np.array(classes_of(problem), np.int64), return_inverse=True)
    totals = np.zeros((len(numbers), len(problem.devices)))
    np.add.at(totals, rows, problem.costs.seconds)
    return dict(zip(numbers.tolist(), totals, strict=True))


def class_sums(problem: Problem, values: Sequence[float]) -> dict[int, float]:
    """Returns the sum of the operations' values in each class, in the order of the operations."""
    sums = dict.fromkeys(classes_of(problem), 0.0)
    for number, value in zip(classes_of(problem), values, strict=True):
        sums[number] += value
    return sums


def class_members(problem: Problem) -> dict[int, list[int]]:
    """Returns the operations of each class, in their order."""
    members: dict[int, list[int]] = {}
    for operation, number in enumerate(classes_of(problem)):
        members.setdefault(number, []).append(operation)
    return members


def resident_of(problem: Problem) -> tuple[float, ...]:
    """Returns the resident bytes of each operation."""
    return problem.constraints.resident or (0.0,) * len(problem.graph)


def capacity_of(problem: Problem) -> tuple[float, ...]:
    """Returns the memory of each device in bytes, infinite where there is no limit."""
    return problem.constraints.capacity or (math.inf,) * len(problem.devices)


def room_of(problem: Problem, devices: Sequence[int]) -> list[float]:
    """Returns the free bytes of each device under a placement; negative if it does not fit."""
    room = list(capacity_of(problem))
    for device, n_bytes in zip(devices, resident_of(problem), strict=True):
        room[device] -= n_bytes
    return room


def infeasible(problem: Problem, operation: int, needed: float, room: float) -> Exception:
    """Returns the error for an operation whose class fits on none of its allowed devices."""
    return ResourceExhaustedError(
        f"no device has room for {problem.graph.operations[operation]}: it and what is colocated "
        f"with it keep {needed:.0f} bytes, {needed - room:.0f} more than the device with the most "
        "room has left; raise the memory limit, add devices, or colocate less"
    )


def lower_bound(problem: Problem) -> float:
    """Returns a lower bound in seconds on every valid schedule, under both network models.

    The largest of three: the longest path without transfers; for every operation what must run
    before it, it, and what must run after it, spread over all processors (the head-tail-work
    bound); and the work of each colocation class, which one device runs one after another.
    """
    least = _least_seconds(problem)
    graph = problem.graph
    # Iterations overlap, so a path has each operation of a loop once.
    once = (np.array(least) / (graph.runs or graph.trips)).tolist()
    before, after = _heads(graph, once), tails(graph, once)
    longest = max((h + s + t for h, s, t in zip(before, once, after, strict=True)), default=0.0)
    n_processors = problem.costs.n_processors
    # Of all operations whose heads are at least h and tails at least t, the first cannot start
    # before h, and after the last one t is still to come.
    work = sum(least) / n_processors
    if len(graph) <= 2000:
        h, t, s = (np.array(values) for values in (before, after, least))
        for tail in np.unique(t):
            late = t >= tail
            order = np.argsort(-h[late], kind="stable")
            sums = np.cumsum(s[late][order]) / n_processors + h[late][order] + tail
            work = max(work, float(sums.max()))
    return max(longest, work, _class_work(problem))


def _least_seconds(problem: Problem) -> list[float]:
    """Returns the seconds of each operation on the fastest device that it may run on."""
    allowed, classes = problem.constraints.allowed, classes_of(problem)
    seconds = problem.costs.seconds
    least: list[float] = seconds.min(axis=1).tolist()
    for operation, number in enumerate(classes) if allowed else ():
        if number in allowed:
            least[operation] = float(seconds[operation, list(allowed[number])].min())
    return least


def _heads(graph: OperationGraph, least: Sequence[float]) -> list[float]:
    longest = [0.0] * len(least)
    for operation in graph.order:
        for before in graph.predecessors[operation]:
            longest[operation] = max(longest[operation], longest[before] + least[before])
    return longest


def tails(graph: OperationGraph, least: Sequence[float]) -> list[float]:
    """Returns the longest path after each operation; `least` has the seconds of each operation."""
    longest = [0.0] * len(least)
    for operation in reversed(graph.order):
        for after in graph.successors[operation]:
            longest[operation] = max(longest[operation], longest[after] + least[after])
    return longest


def _class_work(problem: Problem) -> float:
    """Returns the largest work of a class, each on its fastest allowed device."""
    if not problem.constraints.classes:
        return max(_least_seconds(problem), default=0.0)
    largest = 0.0
    for number, seconds in class_seconds(problem).items():
        devices = problem.constraints.allowed.get(number)
        largest = max(
            largest, float((seconds if devices is None else seconds[list(devices)]).min())
        )
    return largest

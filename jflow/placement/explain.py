"""Why each operation is where it is, and what a step would take if it were elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

from jflow.cluster import Device, Task, Wiring
from jflow.errors import UnimplementedError
from jflow.graph import Operation
from jflow.placement.calibration import Calibration
from jflow.placement.place import GroupAssignment
from jflow.placement.scheduled import ScheduledAssignment
from jflow.placement.strategy import Assignment
from jflow.schedule import Problem, Schedule, lower_bound, scheduled, simulate
from jflow.schedule.schedule import by_rank, name_of

_SHOWN = 200
"""Rows that the text shows at most."""


@dataclass(frozen=True)
class Reason:
    """Why an operation is on its device.

    Attributes:
      operation: its name.
      device: where it is.
      why: the rule that decided, or the strategy that chose.
      alternatives: the other devices that it may go to, with all that is colocated with it, and the
        predicted time of the step in seconds if it were there.
    """

    operation: str
    device: str
    why: str
    alternatives: Mapping[str, float]


class Explanation:
    """The placement of a step, with its reasons and its predicted time.

    Times are predictions of a simulator from estimated costs.

    Args:
      assignment: what the rules say.
      problem: what was to be placed.
      schedule: how it was placed.
      strategy: the name of what chose.

    Attributes:
      strategy: likewise.
    """

    def __init__(
        self, assignment: ScheduledAssignment, problem: Problem, schedule: Schedule, strategy: str
    ) -> None:
        self._assignment = assignment
        self._problem = problem
        self._schedule = schedule
        self.strategy = strategy

    @cached_property
    def predicted_seconds(self) -> float:
        """The predicted time of the step."""
        return self._seconds(self._schedule)

    @cached_property
    def lower_bound(self) -> float:
        """Seconds that every placement takes at least, with these costs."""
        return lower_bound(self._problem) + self._problem.costs.step_seconds

    def _seconds(self, schedule: Schedule) -> float:
        return simulate(self._problem, schedule).makespan + self._problem.costs.step_seconds

    @cached_property
    def reasons(self) -> tuple[Reason, ...]:
        """Why each operation is where it is, in the order in which they run."""
        moved: dict[int, dict[str, float]] = {}
        return tuple(self._reason(number, moved) for number in self._schedule.order)

    def _reason(self, number: int, moved: dict[int, dict[str, float]]) -> Reason:
        op, problem = self._ops[number], self._problem
        group = problem.constraints.classes[number]
        if group not in moved:
            moved[group] = self._alternatives(group)
        device = problem.devices[self._schedule.devices[number]]
        return Reason(op.name, str(device), self._why(op, moved[group]), moved[group])

    def _why(self, op: Operation, alternatives: Mapping[str, float]) -> str:
        rules = self._assignment.rules
        owner = rules.owners[op]
        group = rules.colocated[owner]
        if owner is not op:
            return f"uses {owner.name!r}, which lives here"
        if group.has_state:
            return "the place of its state, the same for every session"
        spec = rules.requests[group].spec
        together = f", with {len(group.members)} colocated operations" if group.members[1:] else ""
        if not alternatives and not spec.is_empty:
            return f"asks for {str(spec)!r}{together}"
        if not alternatives:
            return f"there is no other device{together}"
        limits = "" if spec.is_empty else f" among the devices of {str(spec)!r}"
        return f"chosen by {self.strategy}{limits}{together}"

    def _alternatives(self, group: int) -> dict[str, float]:
        problem, devices = self._problem, self._schedule.devices
        members = [i for i, number in enumerate(problem.constraints.classes) if number == group]
        here = devices[members[0]]
        allowed = problem.constraints.allowed.get(group, range(len(problem.devices)))
        found = {}
        for device in allowed:
            if device != here:
                moved = [*devices]
                for i in members:
                    moved[i] = device
                candidate = Schedule(tuple(moved), self._schedule.order)
                found[str(problem.devices[device])] = self._seconds(candidate)
        return found

    @cached_property
    def _ops(self) -> Sequence[Operation]:
        return [*self._assignment.rules.owners]

    def text(self) -> str:
        """A table: operation, device, reason, and the best alternative."""
        lines = [
            f"placed by {self.strategy}: predicted step time {_time(self.predicted_seconds)}, "
            f"lower bound {_time(self.lower_bound)}"
        ]
        for reason in self.reasons[:_SHOWN]:
            line = f"{reason.operation}  {reason.device}  {reason.why}"
            if reason.alternatives:
                other = min(reason.alternatives, key=reason.alternatives.__getitem__)
                line += f"; on {other} the step takes {_time(reason.alternatives[other])}"
            lines.append(line)
        if len(self.reasons) > _SHOWN:
            lines.append(f"… and {len(self.reasons) - _SHOWN} more")
        return "\n".join(lines)

    __str__ = text

    def __repr__(self) -> str:
        return (
            f"<jflow.Explanation of {len(self._ops)} operations, by {self.strategy}, "
            f"predicted {_time(self.predicted_seconds)}>"
        )

    def to_json(self) -> str:
        """All of it: strategy, predicted_seconds, lower_bound, and the reasons in their order."""
        return json.dumps(
            {
                "strategy": self.strategy,
                "predicted_seconds": self.predicted_seconds,
                "lower_bound": self.lower_bound,
                "operations": [asdict(reason) for reason in self.reasons],
            }
        )


def explain(
    assignment: Assignment,
    devices: Mapping[Task, Sequence[Device]],
    calibration: Calibration | None = None,
    wiring: Wiring | None = None,
) -> Explanation:
    """The explanation of a placement.

    Args:
      assignment: the first half of it.
      devices: of the tasks that the assignment needs.
      calibration, wiring: what costs are estimated with for a placement of the rules; a function's
        has its own.

    Raises:
      InvalidArgumentError: as `Assignment.place`.
      UnimplementedError: if the assignment is neither of the rules nor of a function.
    """
    match assignment:
        case ScheduledAssignment():
            problem = assignment.problem(devices)
            schedule = scheduled(problem, assignment.function)
            return Explanation(assignment, problem, schedule, name_of(assignment.function))
        case GroupAssignment():
            alone = ScheduledAssignment(
                _unused,
                assignment,
                tuple(assignment.tasks),
                calibration=calibration,
                wiring=wiring,
            )
            placement = assignment.place(devices)
            problem = alone.problem(devices)
            number = {device: i for i, device in enumerate(problem.devices)}
            schedule = by_rank(problem, [number[placement[op]] for op in assignment.owners])
            return Explanation(alone, problem, schedule, "rules")
    raise UnimplementedError(
        f"a placement of {type(assignment).__name__} cannot be explained; strategies that are "
        "functions of graph, devices, costs and constraints can"
    )


def _unused(*_: object) -> Schedule:
    raise AssertionError("the rules have placed it")


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"

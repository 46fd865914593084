"""Explanations of a placement: the reason for each device, and the step time on others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from jflow.base.cards import MAX_ROWS, Card, Carded, CardTable, picture_of
from jflow.base.cluster import Device, Task, Wiring
from jflow.base.text import seconds_text
from jflow.compiler.graph import Operation
from jflow.compiler.graph.primitives import constant_p
from jflow.compiler.placement.calibration import Calibration
from jflow.compiler.placement.place import GroupAssignment
from jflow.compiler.placement.scheduled import ScheduledAssignment
from jflow.compiler.placement.strategy import UNLIMITED_MEMORY, Assignment, Memory, Placement
from jflow.compiler.schedule import Problem, Schedule, lower_bound, simulate, trace_of
from jflow.compiler.schedule.problem import class_members, resident_of, room_of
from jflow.compiler.schedule.schedule import by_rank, name_of
from jflow.compiler.schedule.stage_run import (
    LoopTime,
    StageRun,
    predicted_seconds,
    simulate_stages,
    trace_of_stages,
)
from jflow.errors import UnimplementedError
from jflow.plan.trace import Trace

RULES = "rules"
"""The name of the strategy that obeys requests and puts all else on the master's first device."""

_SHOWN = 200
"""Rows that the text and the table show at most."""

_CANDIDATES_SHOWN = 6

_COLUMNS = ("operation", "takes", "device", "why", "best alternative", "step there")

_SIMULATED = 5_000_000
"""Operations times alternatives up to which JSON has the times of all alternatives."""


class _Alternatives(Mapping[str, float]):
    """Predicted step times by device, each simulated when it is first looked up."""

    def __init__(self, schedules: Mapping[str, Callable[[], float]]) -> None:
        self._simulations = schedules
        self._known: dict[str, float] = {}

    def __getitem__(self, device: str) -> float:
        if device not in self._known:
            self._known[device] = self._simulations[device]()
        return self._known[device]

    def __iter__(self) -> Iterator[str]:
        return iter(self._simulations)

    def __len__(self) -> int:
        return len(self._simulations)

    def __repr__(self) -> str:
        return repr(dict(self))


@dataclass(frozen=True)
class Reason:
    """Why an operation is on its device.

    Attributes:
      operation: its name.
      device: where it is.
      why: the rule that decided, or the strategy that chose.
      seconds: what the operation itself takes there, as predicted.
      alternatives: the other devices that it may go to, with all that is colocated with it, and the
        predicted time of the step in seconds if it were there, simulated when it is looked at.
    """

    operation: str
    device: str
    why: str
    seconds: float
    alternatives: Mapping[str, float] = field(hash=False)

    @property
    def best_alternative(self) -> tuple[str, float] | None:
        """The other device with the least predicted step time, and that time in seconds."""
        return min(self.alternatives.items(), key=lambda each: each[1], default=None)


class Explanation(Carded):
    """The placement of a step, with its reasons and its predicted time.

    Times are predictions of a simulator from estimated costs.

    Args:
      assignment: what the rules say.
      problem: what was to be placed.
      schedule: how it was placed.
      strategy: the name of what chose.
      candidates: if the strategy chose among several, the simulated time of each in seconds.
      bound: what it has proven that every schedule takes at least, in seconds.

    Attributes:
      problem, schedule, strategy: likewise. `jflow.lab` takes a problem, for other strategies, and
        writes it for other tools.
      candidates: the predicted time of the step under each candidate, in seconds.
    """

    def __init__(
        self,
        assignment: ScheduledAssignment,
        problem: Problem,
        schedule: Schedule,
        strategy: str,
        candidates: Mapping[str, float] | None = None,
        bound: float = 0.0,
    ) -> None:
        self._assignment = assignment
        self.problem = problem
        self.schedule = schedule
        self.strategy = strategy
        extra = problem.costs.step_seconds
        self.candidates = {name: time + extra for name, time in (candidates or {}).items()}
        self._bound = bound
        self._alternatives: dict[int, Mapping[str, float]] = {}

    @cached_property
    def predicted_seconds(self) -> float:
        """The predicted time of the step."""
        return self._seconds(self.schedule)

    @cached_property
    def lower_bound(self) -> float:
        """Lower bound in seconds on the step time of every placement, with these costs."""
        return max(lower_bound(self.problem), self._bound) + self.problem.costs.step_seconds

    def _seconds(self, schedule: Schedule) -> float:
        return predicted_seconds(self.problem, schedule) + self.problem.costs.step_seconds

    @cached_property
    def loops(self) -> tuple[LoopTime, ...]:
        """The loops over devices that run their bodies more than once; how long each takes."""
        return self._in_stages.loops if self.problem.graph.loops else ()

    @cached_property
    def _in_stages(self) -> StageRun:
        return simulate_stages(self.problem, self.schedule)

    @cached_property
    def trace(self) -> Trace:
        """The simulated step, a span for each operation; see `jflow.plan.trace.merged`.

        The runtime runs the operations of a device between two crossings as one program, so its
        trace has fewer and longer spans, and `predicted_seconds` may be later than the end of this.
        With loops over devices the spans are these programs, one for each iteration, of the first
        iterations of a long loop.
        """
        if self.problem.graph.loops:
            return trace_of_stages(self.problem, self._in_stages, f"simulated, {self.strategy}")
        timeline = simulate(self.problem, self.schedule)
        return trace_of(self.problem, timeline, f"simulated, {self.strategy}")

    @cached_property
    def placement(self) -> Placement:
        """A device for each operation, in the order in which they run."""
        return {self._ops[i]: self._device(i) for i in self.schedule.order}

    @cached_property
    def reasons(self) -> tuple[Reason, ...]:
        """The reasons for all placements, in the order in which the operations run."""
        return tuple(map(self._reason, self.schedule.order))

    def reason(self, operation: Operation | str) -> Reason:
        """Explains the placement of an operation, given as an object or by name.

        Raises:
          KeyError: if the step does not need such an operation.
        """
        name = operation if isinstance(operation, str) else operation.name
        if name not in self._numbers:
            raise KeyError(f"the step needs no operation {name!r}")
        return self._reason(self._numbers[name])

    def _reason(self, number: int) -> Reason:
        op = self._ops[number]
        alternatives = self._alternative_times(self.problem.constraints.classes[number])
        device = self.schedule.devices[number]
        seconds = float(self.problem.costs.seconds[number, device])
        why = self._why(op, self._device(number), alternatives)
        return Reason(op.name, str(self._device(number)), why, seconds, alternatives)

    def _why(self, op: Operation, device: Device, alternatives: Mapping[str, float]) -> str:
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
        return f"chosen by {self.strategy}{self._rule(op, device)}{limits}{together}"

    def _rule(self, op: Operation, device: Device) -> str:
        """Names the rule of `place.py` that chose the device of an operation without a request."""
        if self.strategy != RULES:
            return ""
        users = {self._device(self._numbers[use.name]) for use in self._users.get(op, ())}
        if op.eqn.primitive is constant_p and users == {device}:
            return ": a constant goes to its consumers"
        if device != self._assignment.rules.default_device(op, self._devices_by_task):
            return ": beside the data that it uses or makes, where fewer bytes are sent"
        return ": the first device of its task"

    @cached_property
    def _devices_by_task(self) -> Mapping[Task, Sequence[Device]]:
        devices: dict[Task, list[Device]] = {}
        for device in self.problem.devices:
            assert isinstance(device, Device)
            devices.setdefault(device.task, []).append(device)
        return devices

    def _alternative_times(self, group: int) -> Mapping[str, float]:
        """Returns the predicted step times with a colocated group on each other device."""
        if group not in self._alternatives:
            self._alternatives[group] = self._simulated(group)
        return self._alternatives[group]

    def _simulated(self, group: int) -> Mapping[str, float]:
        problem, devices = self.problem, self.schedule.devices
        members = self._members[group]
        allowed = problem.constraints.allowed.get(group, range(len(problem.devices)))
        resident, room = resident_of(problem), self._room
        needed = sum(resident[i] for i in members)
        return _Alternatives(
            {
                str(problem.devices[device]): partial(self._seconds_with, members, device)
                for device in allowed
                if device != devices[members[0]] and needed <= room[device]
            }
        )

    def _seconds_with(self, members: Sequence[int], device: int) -> float:
        moved = [*self.schedule.devices]
        for i in members:
            moved[i] = device
        return self._seconds(Schedule(tuple(moved), self.schedule.order))

    def _device(self, number: int) -> Device:
        device = self.problem.devices[self.schedule.devices[number]]
        assert isinstance(device, Device)
        return device

    @cached_property
    def _ops(self) -> Sequence[Operation]:
        return [*self._assignment.rules.owners]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {op.name: i for i, op in enumerate(self._ops)}

    @cached_property
    def _members(self) -> dict[int, list[int]]:
        """The indices of the operations of each colocation class."""
        return class_members(self.problem)

    @cached_property
    def _room(self) -> list[float]:
        """The free memory of each device in bytes."""
        return room_of(self.problem, self.schedule.devices)

    @cached_property
    def _users(self) -> dict[Operation, list[Operation]]:
        """The operations that use the results of each operation."""
        users: dict[Operation, list[Operation]] = {}
        for op in self._ops:
            for tensor in op.inputs:
                users.setdefault(tensor.op, []).append(op)
        return users

    # Forms ------------------------------------------------------------------------------------

    @property
    def summary(self) -> str:
        """One line: the strategy, the predicted step time, and the lower bound."""
        return (
            f"placed by {self.strategy}: predicted step time "
            f"{seconds_text(self.predicted_seconds)}, lower bound {seconds_text(self.lower_bound)}"
        )

    def text(self) -> str:
        """Returns a line for each operation: device, reason, and the best alternative."""
        lines = [self.summary, *map(str, self.loops)]
        if self.candidates:
            lines.append(self._candidate_text())
        for reason in self._first_reasons():
            line = f"{reason.operation}  {reason.device}  {reason.why}"
            other = reason.best_alternative
            if other is not None:
                line += f"; on {other[0]} the step takes {self._time_text(other[1])}"
            lines.append(line)
        return "\n".join([*lines, *self._rest()])

    __str__ = text

    def to_markdown(self) -> str:
        """Returns a Markdown table: operation, device, reason, best alternative and its cost."""
        lines = [self.summary, ""]
        for loop in self.loops:
            lines += [str(loop), ""]
        if self.candidates:
            lines += [self._candidate_text(), ""]
        lines += [
            f"| {' | '.join(_COLUMNS)} |",
            "|---" * len(_COLUMNS) + "|",
        ]
        for cells in map(self._cells, self._first_reasons()):
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        return "\n".join([*lines, *(["", *self._rest()] if self._rest() else [])])

    def _card(self) -> Card:
        rows = [*map(self._cells, self._first_reasons()[:MAX_ROWS])]
        facts = (
            ("placed by", self.strategy),
            ("predicted step time", seconds_text(self.predicted_seconds)),
            ("lower bound", seconds_text(self.lower_bound)),
            *(("loop", str(loop).removeprefix("loop ")) for loop in self.loops),
            *((f"by {name}", seconds_text(time)) for name, time in self.candidates.items()),
        )
        tables = (CardTable("operations", _COLUMNS, rows, len(self._ops)),)
        return Card("Explanation", "", facts, tables, picture_of(self))

    _repr_markdown_ = to_markdown

    def to_json(self) -> str:
        """Returns the whole explanation as a JSON object.

        Its keys are ``strategy``, ``predicted_seconds``, ``lower_bound``, ``candidates`` (seconds
        by strategy), ``loops`` (objects with ``name``, ``trips``, ``devices``, ``seconds`` and
        ``bubble``, from 0 to 1), and ``operations``, in the order in which they run: objects with
        the attributes of `Reason`. In a large graph, whose alternatives would take long to
        simulate, those after the 200 first operations are without times (null).
        """
        reasons = self.reasons
        n_alternatives = sum(len(each) for each in self._alternatives.values())
        is_large = n_alternatives * len(reasons) > _SIMULATED
        n_timed = _SHOWN if is_large else len(reasons)
        operations = [
            {
                "operation": each.operation,
                "device": each.device,
                "why": each.why,
                "seconds": each.seconds,
                "alternatives": {
                    device: each.alternatives[device] if i < n_timed else None
                    for device in each.alternatives
                },
            }
            for i, each in enumerate(reasons)
        ]
        return json.dumps(
            {
                "strategy": self.strategy,
                "predicted_seconds": self.predicted_seconds,
                "lower_bound": self.lower_bound,
                "candidates": self.candidates,
                "loops": [
                    {
                        "name": one.loop.name,
                        "trips": one.loop.trips,
                        "devices": [str(self.problem.devices[each]) for each in one.devices],
                        "seconds": one.seconds,
                        "bubble": one.bubble,
                    }
                    for one in self.loops
                ],
                "operations": operations,
            }
        )

    def __repr__(self) -> str:
        return (
            f"<jflow.Explanation of {len(self._ops)} operations, by {self.strategy}, "
            f"predicted {seconds_text(self.predicted_seconds)}>"
        )

    def _cells(self, reason: Reason) -> tuple[str, ...]:
        """Returns the row of an operation in a table."""
        other = reason.best_alternative
        there = ("", "") if other is None else (other[0], self._time_text(other[1]))
        takes = seconds_text(reason.seconds)
        return (reason.operation, takes, reason.device, reason.why, *there)

    def _time_text(self, seconds: float) -> str:
        """Formats a step time with its difference from the predicted one."""
        more = round(seconds - self.predicted_seconds, 12)
        if not more:
            return f"{seconds_text(seconds)}, the same"
        word = "more" if more > 0 else "less"
        return f"{seconds_text(seconds)}, {seconds_text(abs(more))} {word}"

    def _candidate_text(self) -> str:
        best = sorted(self.candidates.items(), key=lambda each: each[1])
        shown = [f"{name} {seconds_text(seconds)}" for name, seconds in best[:_CANDIDATES_SHOWN]]
        more = len(best) - len(shown)
        return "candidates: " + ", ".join(shown) + (f", and {more} more" if more > 0 else "")

    def _first_reasons(self) -> list[Reason]:
        return [*map(self._reason, self.schedule.order[:_SHOWN])]

    def _rest(self) -> list[str]:
        more = len(self._ops) - _SHOWN
        return [f"… and {more} more"] if more > 0 else []


def explain(
    assignment: Assignment,
    devices: Mapping[Task, Sequence[Device]],
    calibration: Calibration | None = None,
    wiring: Wiring | None = None,
    memory: Memory = UNLIMITED_MEMORY,
) -> Explanation:
    """Explains a placement.

    Args:
      assignment: the first half of it.
      devices: of the tasks that the assignment needs.
      calibration, wiring: what costs are estimated with for a placement of the rules; a function's
        has its own.
      memory: what the devices can keep.

    Raises:
      InvalidArgumentError, ResourceExhaustedError: as `Assignment.place`.
      UnimplementedError: if the assignment is neither of the rules nor of a function.
    """
    match assignment:
        case ScheduledAssignment():
            problem = assignment.problem(devices, memory)
            answer = assignment.answer(problem)
            name = name_of(assignment.function)
            return Explanation(
                assignment, problem, answer.schedule, name, answer.candidates, answer.bound
            )
        case GroupAssignment():
            alone = ScheduledAssignment(
                _unused,
                assignment,
                tuple(assignment.tasks),
                calibration=calibration,
                wiring=wiring,
            )
            placement = assignment.place(devices)
            problem = alone.problem(devices, memory)
            number = {device: i for i, device in enumerate(problem.devices)}
            schedule = by_rank(problem, [number[placement[op]] for op in assignment.owners])
            return Explanation(alone, problem, schedule, RULES)
    raise UnimplementedError(
        f"a placement of {type(assignment).__name__} cannot be explained; strategies that are "
        "functions of graph, devices, costs and constraints can"
    )


def _unused(*_: object) -> Schedule:
    raise AssertionError("the rules have placed it")

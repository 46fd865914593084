"""Places steps by a strategy of `jflow.compiler.schedule`, within the placement rules.

The rules (`place.py`) are the constraints: an operation with a device request goes where it asks
to, colocated operations go together, and state goes where it already is. State that nothing pins
goes where the rules put it, which is the same for all sessions, so that sessions with different
strategies share what they name. The strategy chooses for the rest.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from jflow.base.cluster import MESH, Axes, Device, Task, Wiring
from jflow.compiler.graph import Graph, Operation, Tensor
from jflow.compiler.graph.bundle import is_small
from jflow.compiler.graph.control import control_sources
from jflow.compiler.graph.primitives import (
    ACCESSES,
    calls_client,
    group_p,
    index_p,
    is_on_host,
)
from jflow.compiler.placement.calibration import Calibration
from jflow.compiler.placement.costs import estimated
from jflow.compiler.placement.elements import awaited_elements
from jflow.compiler.placement.equations import size_of
from jflow.compiler.placement.group import Group
from jflow.compiler.placement.loops import awaited_in_loops, repeated, sendings_of, trips_of
from jflow.compiler.placement.memory import capacities, check_pinned, resident_bytes
from jflow.compiler.placement.place import GroupAssignment, assign, matching
from jflow.compiler.placement.strategy import (
    UNLIMITED_MEMORY,
    Handles,
    Inventory,
    Memory,
    Placement,
)
from jflow.compiler.schedule import (
    Constraints,
    Dependency,
    OperationGraph,
    PlaceFunction,
    Problem,
    Schedule,
    scheduled,
)
from jflow.compiler.schedule.schedule import by_rank
from jflow.compiler.schedule.strategies import STRATEGIES, choose


@dataclass(frozen=True)
class Answer:
    """The result of a strategy for a problem.

    Attributes:
      schedule: a device for each operation, and an order.
      candidates: if it chose among several, the predicted time of each in seconds.
      bound: what it has proven that every schedule takes at least, in seconds.
    """

    schedule: Schedule
    candidates: Mapping[str, float] = field(default_factory=dict)
    bound: float = 0.0


@dataclass(frozen=True)
class ByFunction:
    """Placement strategy that calls a function of graph, devices, costs and constraints.

    Attributes:
      function: see `jflow.compiler.schedule.PlaceFunction`; the operations of its graph are those
        of the step, its devices those of the cluster.
      calibration: what costs are estimated with; None for the prior.
      places_state: see `ScheduledAssignment`. State stays where the first step has put it; two
        sessions that name the same state must then not place it at two devices, so this is for
        state that no other session names, such as that of a container of its own.
      answers: what it gave, by graph, so that a step is explained as it runs.
    """

    function: PlaceFunction
    calibration: Calibration | None = None
    places_state: bool = False
    answers: WeakKeyDictionary[Graph, dict[Any, Answer]] = field(
        default_factory=WeakKeyDictionary, compare=False
    )

    def __call__(
        self, ops: Sequence[Operation], inventory: Inventory, *, soft: bool, handles: Handles
    ) -> ScheduledAssignment:
        rules = assign(ops, inventory, soft=soft, handles=handles)
        answers = self.answers.setdefault(ops[0].graph, {}) if ops else {}
        return ScheduledAssignment(
            self.function,
            rules,
            inventory.tasks,
            places_state=self.places_state,
            calibration=self.calibration,
            wiring=inventory.wiring,
            answers=answers,
        )


@dataclass(frozen=True)
class ScheduledAssignment:
    """The first half of a placement by a function; see `Assignment`.

    Attributes:
      function: chooses the devices.
      rules: what the placement rules say.
      every_task: the tasks of the cluster.
      places_state: whether the function chooses the devices of state that nothing pins.
      places_operations: whether it chooses those of operations; else they are where the rules say.
      calibration: what costs are estimated with; None for the prior.
      wiring: how the tasks reach each other.
      answers: what the function gave for problems of this graph.
    """

    function: PlaceFunction
    rules: GroupAssignment
    every_task: tuple[Task, ...]
    places_state: bool = False
    places_operations: bool = True
    calibration: Calibration | None = None
    wiring: Wiring | None = None
    answers: dict[Any, Answer] = field(default_factory=dict, compare=False)

    @property
    def tasks(self) -> Collection[Task]:
        """The tasks that the operations may run on."""
        return {task for group in self.rules.requests for task in self._tasks(group)}

    def place(
        self, devices: Mapping[Task, Sequence[Device]], memory: Memory = UNLIMITED_MEMORY
    ) -> Placement:
        """Returns a device for each operation, in the order in which the devices run them.

        Raises:
          InvalidArgumentError: as the rules; also if the function's answer breaks them.
          ResourceExhaustedError: if variables do not fit into the memory of the devices.
        """
        schedule = self.answer(self.problem(devices, memory)).schedule
        ops, every = [*self.rules.owners], self.devices(devices)
        return {ops[i]: every[schedule.devices[i]] for i in schedule.order}

    def answer(self, problem: Problem) -> Answer:
        """Returns the schedule of the function for a problem; it is called once for each problem.

        Raises:
          InvalidArgumentError: if the answer breaks the rules.
          ResourceExhaustedError: if what has only one device to go to does not fit there.
          Exception: as the function does.
        """
        constraints = problem.constraints
        names = tuple(op.name for op in self.rules.owners)
        allowed = tuple(sorted(constraints.allowed.items()))
        key = (names, tuple(problem.devices), constraints.classes, allowed, constraints.capacity)
        if key not in self.answers:
            check_pinned(problem)
            self.answers[key] = self._answer(problem)
        return self.answers[key]

    def _answer(self, problem: Problem) -> Answer:
        allowed, classes = problem.constraints.allowed, problem.constraints.classes
        if all(len(allowed.get(number, problem.devices)) == 1 for number in {*classes}):
            # As for reads and updates of state, for which a search would take longer than the step.
            only = [allowed.get(number, (0,))[0] for number in classes]
            return Answer(by_rank(problem, only))
        if self.function is STRATEGIES["auto"]:
            chosen = choose(problem)
            return Answer(chosen.schedule, chosen.predicted, chosen.bound)
        return Answer(scheduled(problem, self.function))

    def devices(self, devices: Mapping[Task, Sequence[Device]]) -> list[Device]:
        """Returns the devices of all tasks that the operations may run on.

        Meshes are among them only if operations request them.
        """
        tasks = self.tasks
        every = [device for task in self.every_task if task in tasks for device in devices[task]]
        meshes = {
            mesh
            for group, request in self.rules.requests.items()
            if request.spec.type == MESH
            for task in self._tasks(group)
            for mesh in matching(request.spec, devices[task])
        }
        return every + sorted(meshes)

    def problem(
        self, devices: Mapping[Task, Sequence[Device]], memory: Memory = UNLIMITED_MEMORY
    ) -> Problem:
        """Returns the problem to solve. Raises InvalidArgumentError as the rules do."""
        fixed: Placement = {}
        every = self.devices(devices)
        number = {device: i for i, device in enumerate(every)}
        ops = [*self.rules.owners]
        groups = {group: i for i, group in enumerate(self.rules.requests)}
        classes = [groups[self.rules.colocated[self.rules.owners[op]]] for op in ops]
        allowed = {}
        for op, group_number in zip(ops, classes, strict=True):
            if group_number not in allowed:
                group = self.rules.colocated[self.rules.owners[op]]
                candidates = self._devices(group, devices)
                if not candidates:
                    # The task of the rules need not have what a free group asks for.
                    fixed = fixed or self.rules.place(devices)
                    candidates = [fixed[op]]
                allowed[group_number] = tuple(number[device] for device in candidates)
        limits = _limits(ops, every, memory, classes, allowed)
        constraints = Constraints(tuple(classes), allowed, *limits)
        graph = OperationGraph(
            tuple(ops), tuple(_dependencies(ops)), repeated(ops), tuple(map(trips_of, ops))
        )
        on_meshes: dict[Axes, set[Operation]] = {}
        for op, group_number in zip(ops, classes, strict=True):
            for axes in {every[device].axes for device in allowed[group_number]} - {()}:
                on_meshes.setdefault(axes, set()).add(op)
        costs = estimated(ops, every, self.calibration, self.wiring, on_meshes=on_meshes)
        for values in costs.arrays:
            values.setflags(write=False)  # a strategy that changed them would falsify predictions
        return Problem(graph, tuple(every), costs, constraints).checked()

    def _tasks(self, group: Group) -> Sequence[Task]:
        """Returns the tasks that a group may run on."""
        request = self.rules.requests[group]
        if request.spec.task is not None or not self._is_free(group):
            return [request.task]
        job = request.spec.job
        return [task for task in self.every_task if job in (None, task.job)]

    def _is_free(self, group: Group) -> bool:
        if any(calls_client(op.eqn) for op in group.members):
            return False  # only the task of the client calls it
        return self.places_state if group.has_state else self.places_operations

    def _devices(self, group: Group, devices: Mapping[Task, Sequence[Device]]) -> list[Device]:
        """Returns the devices that a group may run on; none if the rules decide."""
        if not self._is_free(group):
            return []
        spec = self.rules.requests[group].spec
        return [each for task in self._tasks(group) for each in matching(spec, devices[task])]


def _limits(
    ops: Sequence[Operation],
    devices: Sequence[Device],
    memory: Memory,
    classes: Sequence[int],
    allowed: Mapping[int, Sequence[int]],
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns resident bytes and device capacities; both empty if everything fits on any device."""
    resident = resident_bytes(ops)
    if sum(resident) <= min((memory.get(one, math.inf) for one in devices), default=math.inf):
        return (), ()
    pinned: dict[Device, float] = defaultdict(float)
    for n_bytes, number in zip(resident, classes, strict=True):
        if len(allowed[number]) == 1:
            pinned[devices[allowed[number][0]]] += n_bytes
    return resident, capacities(devices, memory, pinned)


def _dependencies(ops: Sequence[Operation]) -> list[Dependency]:
    """Returns the tensors between operations, and a signal from each op with control successors.

    A group does not run, so nothing is sent to it: what waits for it waits for its members. What
    takes elements out of a queue waits for what puts them there (`elements.py`).
    """
    number = {op: i for i, op in enumerate(ops)}
    users: dict[Tensor, dict[int, None]] = {}
    waiting: dict[int, dict[int, None]] = {}
    for op, i in number.items():
        for tensor in op.inputs:
            # Every device has the number of the iteration.
            if tensor.op in number and tensor.op.eqn.primitive is not index_p:
                users.setdefault(tensor, {})[i] = None
        for before in () if op.eqn.primitive is group_p else control_sources(op):
            if before in number:
                waiting.setdefault(number[before], {})[i] = None
    for awaited in (awaited_elements(ops), awaited_in_loops(ops)):
        for before, later in awaited.items():
            waiting.setdefault(number[before], {}).update(dict.fromkeys(number[op] for op in later))
    dependencies = [
        Dependency(
            number[tensor.op],
            tuple(used),
            size_of(tensor.aval) * sendings_of(tensor, (ops[user] for user in used)),
            _bundle(tensor, used, ops),
        )
        for tensor, used in users.items()
    ]
    return dependencies + [
        Dependency(before, tuple(after), 0.0) for before, after in waiting.items()
    ]


def _bundle(tensor: Tensor, used: Iterable[int], ops: Sequence[Operation]) -> str:
    """Returns the bundle key of a tensor: its dtype if it may be bundled, else "".

    Variables are left out: they travel together only if there are many.
    """
    if tensor.op.eqn.primitive in ACCESSES or not is_small(tensor):
        return ""
    return "" if any(is_on_host(ops[user].eqn) for user in used) else tensor.dtype.name

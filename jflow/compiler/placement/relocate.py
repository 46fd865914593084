"""Plans moves of a session's state to other devices, and predicts the step time after them.

The steps of the session are placed as one problem, in which state that nothing pins is free. What a
strategy puts elsewhere is a candidate; it counts only if the steps, placed as the session places
them with the state there, are predicted to be faster.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from jflow.base.cluster import Device
from jflow.compiler.graph import Graph, Operation, VariableRef
from jflow.compiler.placement.calibration import Calibration
from jflow.compiler.placement.costs import estimated
from jflow.compiler.placement.equations import size_of
from jflow.compiler.placement.explain import explain
from jflow.compiler.placement.group import Group, groups, owner_op
from jflow.compiler.placement.place import assign
from jflow.compiler.placement.placer import Placer, refs_of, state_id
from jflow.compiler.placement.scheduled import ByFunction, ScheduledAssignment
from jflow.compiler.placement.strategy import Handles, Inventory, Placement, Strategy
from jflow.state.moves import StateId
from jflow.state.moves.states import VARIABLE

MOVE_S = 0.01
"""Seconds that a move takes in addition to its bytes: steps wait while tasks hold and save."""

MOVABLE = frozenset({VARIABLE, "queue"})
"""The kinds of state that can move."""

_RARE = 0.01
"""Steps that ran in less than this part of all runs do not count."""

_MOST_SINGLES = 16


@dataclass(frozen=True)
class Relocation:
    """A proposed move of colocated state to another device.

    Attributes:
      states: what moves together.
      target: the device that it would move to.
      n_bytes: the size of its variables.
    """

    states: tuple[StateId, ...]
    target: Device
    n_bytes: float

    @property
    def source(self) -> Device:
        """The device that the state is on."""
        return Device.parse(self.states[0].device)

    def __str__(self) -> str:
        names = ", ".join(f"{state.kind} {state.name!r}" for state in self.states)
        return f"{names} from {self.source} to {self.target}"


@dataclass(frozen=True)
class RelocationPlan:
    """Proposed moves, with the predicted step times before and after them and their cost.

    Attributes:
      relocations: what would move.
      before, after: the predicted time of a step in seconds, as the mean over all steps that ran.
      cost: how long the moves would take, in seconds.
    """

    relocations: tuple[Relocation, ...]
    before: float
    after: float
    cost: float


class Relocator:
    """Plans which state of a session should move.

    Args:
      graph: the graph of the session.
      steps: the operations of its steps, and how often each of them ran.
      placer: places them; it knows where their state is.
      inventory: the tasks, with the devices of all of them.
      owner: the session, for resources that are not shared.
      moves_private: whether these can move.
      calibration: what costs are estimated with; None for the prior.
    """

    def __init__(
        self,
        graph: Graph,
        steps: Sequence[tuple[Sequence[Operation], float]],
        placer: Placer,
        inventory: Inventory,
        owner: str,
        *,
        moves_private: bool,
        calibration: Calibration | None = None,
    ) -> None:
        total = sum(weight for _, weight in steps)
        # Steps that run once, such as initializers, do not say where state is needed.
        self._steps = [(ops, weight / total) for ops, weight in steps if weight >= total * _RARE]
        self._placer = placer
        self._handles = {**placer.handles}  # other threads may place steps meanwhile
        self._inventory = inventory
        self._owner = owner
        self._moves_private = moves_private
        self._calibration = calibration
        self._refs = refs_of(graph)
        used = {op for ops, _ in self._steps for op in ops}
        self._ops = [op for op in graph.get_operations() if op in used]
        self._groups = groups(graph.get_operations())

    def plan(self, strategy: Strategy) -> RelocationPlan:
        """Returns the moves by which a strategy would reduce the predicted step time most.

        Raises:
          InvalidArgumentError: as the strategy; also if it breaks a constraint.
        """
        handles = self._handles
        before = self._predicted(handles)
        relocations = self._relocations(strategy)
        plans = [self._rated(relocations, before)]
        if plans[0].after >= before and 1 < len(relocations) <= _MOST_SINGLES:
            plans += [self._rated([one], before) for one in relocations]
        return min(plans, key=lambda plan: plan.after)

    def _rated(self, relocations: Sequence[Relocation], before: float) -> RelocationPlan:
        after = before
        if relocations:
            after = self._predicted({**self._handles, **self._new_devices(relocations)})
        return RelocationPlan(tuple(relocations), before, after, sum(map(self._cost, relocations)))

    def _relocations(self, strategy: Strategy) -> list[Relocation]:
        classes = self._movable()
        if not classes or not self._ops:
            return []
        placement = self._place_all(strategy, {op for handles in classes for op in handles})
        by_owner = {owner_op(op): device for op, device in placement.items()}
        relocations = []
        for handles in classes:
            target = next((by_owner[op] for op in handles if op in by_owner), None)
            if target is not None and target != self._handles[handles[0]]:
                relocations.append(self._relocation(handles, target))
        return relocations

    def _movable(self) -> list[tuple[Operation, ...]]:
        """Returns the handle ops of each colocation class whose state can move."""
        placed = self._handles
        movable: dict[Group, tuple[Operation, ...]] = {}
        for op in placed:
            group = self._groups.get(op) or Group((op,))
            members = tuple(each for each in group.members if each in self._refs)
            if members and all(map(self._can_move, members)):
                movable[group] = tuple(sorted(members, key=lambda each: each not in placed))
        return [*dict.fromkeys(movable.values())]

    def _can_move(self, op: Operation) -> bool:
        ref = self._refs[op]
        if isinstance(ref, VariableRef):
            return True
        return ref.kind in MOVABLE and (ref.is_shared or self._moves_private)

    def _place_all(self, strategy: Strategy, free: Collection[Operation]) -> Placement:
        """Places all steps together, with only the state of the `free` handle ops movable."""
        placer, inventory = self._placer, self._inventory
        fixed = {op: device for op, device in self._handles.items() if op not in free}
        if not isinstance(strategy, ByFunction):
            rules = strategy(self._ops, inventory, soft=placer.soft, handles=fixed)
            return rules.place(inventory.devices, inventory.memory)
        return ScheduledAssignment(
            strategy.function,
            assign(self._ops, inventory, soft=placer.soft, handles=fixed),
            inventory.tasks,
            places_state=True,
            # What the session places by the rules stays where they put it.
            places_operations=isinstance(placer.strategy, ByFunction),
            calibration=self._calibration,
            wiring=inventory.wiring,
        ).place(inventory.devices, inventory.memory)

    def _relocation(self, handles: Sequence[Operation], target: Device) -> Relocation:
        source = self._handles[handles[0]]
        refs = [self._refs[op] for op in handles]
        states = tuple(state_id(ref, source, self._owner) for ref in refs)
        return Relocation(states, target, sum(map(size_of, refs)))

    def _new_devices(self, relocations: Sequence[Relocation]) -> dict[Operation, Device]:
        """Returns the new devices of the handle ops whose state is relocated."""
        targets = {state: one.target for one in relocations for state in one.states}
        return {
            op: targets[state]
            for op, device in self._handles.items()
            if op in self._refs
            if (state := state_id(self._refs[op], device, self._owner)) in targets
        }

    def _predicted(self, handles: Handles) -> float:
        placer, inventory = self._placer, self._inventory
        seconds = 0.0
        for ops, weight in self._steps:
            assignment = placer.strategy(ops, inventory, soft=placer.soft, handles=handles)
            explanation = explain(
                assignment,
                inventory.devices,
                self._calibration,
                inventory.wiring,
                inventory.memory,
            )
            seconds += weight * explanation.predicted_seconds
        return seconds

    def _cost(self, one: Relocation) -> float:
        """Returns the seconds to copy the state, which goes through the master."""
        devices = [one.source, one.target]
        costs = estimated([], devices, self._calibration, self._inventory.wiring)
        return 2 * costs.transfer(one.n_bytes, 0, 1) + MOVE_S

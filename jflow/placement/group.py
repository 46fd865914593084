"""Colocation groups: operations that are placed as one, and what they ask for together."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace

from jflow.cluster import Device, DeviceSpec
from jflow.errors import InvalidArgumentError
from jflow.graph import Operation
from jflow.graph.primitives import HOMES, state_of

_FIELDS = tuple(field.name for field in fields(DeviceSpec))

Homes = Mapping[Operation, Device]
"""Where variables are already, by the operation that has their name."""


@dataclass(frozen=True, eq=False)
class Group:
    """Operations that run on one device. Operations on state stand for what they work on.

    Attributes:
      members: in the graph's order.
    """

    members: tuple[Operation, ...]

    @property
    def has_state(self) -> bool:
        """Whether one of them is a variable or resource, so that the group needs a lasting home."""
        return any(op.eqn.primitive in HOMES for op in self.members)

    def request(self, needed: Collection[Operation], homes: Homes, soft: bool) -> DeviceSpec:
        """What all members ask for together.

        A variable that has a home asks for that, before all others; then the members ask in the
        graph's order. Members count that are not needed, so that a variable has one home in every
        step; but if one of them disagrees with members before it, it is left out.

        Args:
          needed: what is to be placed.
          homes: where variables are already.
          soft: whether a device type or index that disagrees is dropped; of jobs and tasks none is.

        Raises:
          InvalidArgumentError: if a member that is needed disagrees with others.
        """
        if len(self.members) == 1:
            return _asked(self.members[0], homes)
        total = DeviceSpec()
        askers: dict[str, Operation] = {}
        for op in sorted(self.members, key=lambda op: op not in homes):
            spec = _asked(op, homes)
            field = _disagreement(total, spec)
            if field in ("type", "index") and soft:
                spec = replace(spec, index=None, type=None if field == "type" else spec.type)
            elif field is not None and op in needed:
                raise _conflict(op, askers[field], field, homes)
            elif field is not None:
                continue
            askers = {name: op for name in _FIELDS if getattr(spec, name) is not None} | askers
            total = total.merge(spec)
        return total


def anchor(op: Operation) -> Operation:
    """The operation that says where another one runs: its variable's or resource's, else itself."""
    used = state_of(op.eqn)
    return op.graph.home(used[0]) if used else op


def groups(ops: Iterable[Operation]) -> dict[Operation, Group]:
    """The group of each operation that is colocated with another.

    Args:
      ops: all operations of a graph, in its order.
    """
    parents: dict[Operation, Operation] = {}

    def root(op: Operation) -> Operation:
        while parents.setdefault(op, op) is not op:
            op = parents[op]
        return op

    order: dict[Operation, int] = {}
    for number, op in enumerate(ops):
        order[op] = number
        # What uses several resources runs where all of them are.
        others = [op.graph.home(ref) for ref in state_of(op.eqn)[1:]]
        others.extend(anchor(op.graph.get_operation_by_name(name)) for name in op.colocated_with)
        for other in others:
            parents[root(anchor(op))] = root(other)
    members: dict[Operation, list[Operation]] = {}
    for op in sorted(parents, key=order.__getitem__):
        members.setdefault(root(op), []).append(op)
    return {op: group for part in members.values() for group in [Group(tuple(part))] for op in part}


def _asked(op: Operation, homes: Homes) -> DeviceSpec:
    return DeviceSpec.parse(str(homes[op])) if op in homes else op.spec


def _disagreement(one: DeviceSpec, other: DeviceSpec) -> str | None:
    """The first field for which both say something, and not the same."""
    for field in _FIELDS:
        values = getattr(one, field), getattr(other, field)
        if None not in values and values[0] != values[1]:
            return field
    return None


def _conflict(op: Operation, other: Operation, field: str, homes: Homes) -> InvalidArgumentError:
    repair = "" if field in ("job", "task") else ", or allow soft placement"
    return InvalidArgumentError(
        f"Cannot colocate operation {_story(op, homes)}, with operation {_story(other, homes)}: "
        f"operations that are colocated run on one device; pin one of them only{repair}",
        op=op.name,
    )


def _story(op: Operation, homes: Homes) -> str:
    verb = f"is a {op.type} that lives on" if op in homes else "asks for"
    return f"{op.name!r} (made at {op.origin}), which {verb} {str(_asked(op, homes))!r}"

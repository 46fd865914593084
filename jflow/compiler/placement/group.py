"""Colocation groups: operations that are placed as one, and their combined request."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields, replace

from jflow.base.cluster import DeviceSpec
from jflow.compiler.graph import Operation
from jflow.compiler.graph.primitives import HANDLES, state_of
from jflow.compiler.placement.strategy import Handles
from jflow.errors import InvalidArgumentError

_FIELDS = tuple(field.name for field in fields(DeviceSpec))


@dataclass(frozen=True, eq=False, slots=True)
class Group:
    """Operations on one device; a handle op stands for all operations that use its state.

    Attributes:
      members: in the graph's order.
    """

    members: tuple[Operation, ...]

    @property
    def has_state(self) -> bool:
        """Whether a member is a handle op: variables and resources stay where they are placed."""
        return any(op.eqn.primitive in HANDLES for op in self.members)

    def request(self, needed: Collection[Operation], handles: Handles, soft: bool) -> DeviceSpec:
        """Returns the combined request of all members.

        State that has been placed requests its device, before all others; then the members follow
        in the graph's order. Members that are not needed count too, so that every step places a
        variable on the same device, unless they conflict with members before them.

        Args:
          needed: operations to place.
          handles: devices of variables and resources that have been placed.
          soft: whether a conflicting device type or index is dropped; jobs and tasks never are.

        Raises:
          InvalidArgumentError: if a needed member conflicts with another one.
        """
        if len(self.members) == 1:
            return _requested(self.members[0], handles)
        merged = DeviceSpec()
        requesters: dict[str, Operation] = {}
        for op in sorted(self.members, key=lambda op: op not in handles):
            spec = _requested(op, handles)
            field = _disagreement(merged, spec)
            if field in ("type", "index") and soft:
                spec = replace(spec, index=None, type=None if field == "type" else spec.type)
            elif field is not None and op in needed:
                raise _conflict(op, requesters[field], field, handles)
            elif field is not None:
                continue
            named = (name for name in _FIELDS if getattr(spec, name) is not None)
            requesters = dict.fromkeys(named, op) | requesters
            merged = merged.merge(spec)
        return merged


def owner_op(op: Operation) -> Operation:
    """Returns the op that determines the device of another: its state's handle, or itself."""
    used = state_of(op.eqn)
    return op.graph.handle_of(used[0]) if used else op


def groups(ops: Iterable[Operation]) -> dict[Operation, Group]:
    """Returns the groups of all operations that are colocated with another.

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
        # An operation on several resources runs where all of them are.
        others = [op.graph.handle_of(ref) for ref in state_of(op.eqn)[1:]]
        others.extend(owner_op(op.graph.get_operation_by_name(name)) for name in op.colocated_with)
        for other in others:
            parents[root(owner_op(op))] = root(other)
    members: dict[Operation, list[Operation]] = {}
    for op in sorted(parents, key=order.__getitem__):
        members.setdefault(root(op), []).append(op)
    merged = [Group(tuple(together)) for together in members.values()]
    return {op: group for group in merged for op in group.members}


def _requested(op: Operation, handles: Handles) -> DeviceSpec:
    return DeviceSpec.parse(str(handles[op])) if op in handles else op.spec


def _disagreement(one: DeviceSpec, other: DeviceSpec) -> str | None:
    """Returns the first field that two requests set to different values, or None."""
    for field in _FIELDS:
        values = getattr(one, field), getattr(other, field)
        if None not in values and values[0] != values[1]:
            return field
    return None


def _conflict(
    op: Operation, other: Operation, field: str, handles: Handles
) -> InvalidArgumentError:
    repair = "" if field in ("job", "task") else ", or allow soft placement"
    return InvalidArgumentError(
        f"Cannot colocate operation {_described(op, handles)}, "
        f"with operation {_described(other, handles)}: "
        f"colocated operations run on one device; request a device for one of them only{repair}",
        op=op.name,
    )


def _described(op: Operation, handles: Handles) -> str:
    verb = f"is a {op.type} that lives on" if op in handles else "requests"
    return f"{op.name!r} (made at {op.origin}), which {verb} {str(_requested(op, handles))!r}"

"""Contracts a sketch: boxes that say little become part of a neighbour.

A broadcast, a conversion or a constant belongs to the operation beside it, and a group that ends a
step to what it waits for. A variable whose name lies below that of another variable, such as a slot
of an optimizer, belongs to the other one. The flows between the boxes that stay are the same.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from jflow.view.model import Box, BoxKind, Flow, Sketch

TRIVIAL = frozenset(
    {
        "broadcast",
        "broadcast_in_dim",
        "constant",
        "convert_element_type",
        "copy",
        "copy_p",
        "expand_dims",
        "identity",
        "iota",
        "reshape",
        "squeeze",
        "stop_gradient",
        "transpose",
    }
)
"""Types of operations that only move, repeat or convert a value."""

_GROUPS = frozenset({"group"})


def contracted(sketch: Sketch) -> Sketch:
    """Returns a sketch with boxes that say little hidden in their neighbours."""
    merger = _Merger(sketch)
    merger.hide_slots()
    merger.hide_trivial()
    merger.hide_ends()
    return merger.sketch()


class _Merger:
    def __init__(self, sketch: Sketch) -> None:
        self._boxes = sketch.boxes
        self._links = sketch.links
        self._host = list(range(len(sketch.boxes)))
        self._ends: set[int] = set()

    def hide_slots(self) -> None:
        """Hides each variable below the outermost variable that its name is below."""
        states = [i for i, box in enumerate(self._boxes) if box.kind is BoxKind.STATE]
        index = {(self._boxes[i].device, self._boxes[i].name): i for i in states}
        for i in states:
            scope = self._boxes[i].scope
            names = ("/".join(scope[:depth]) for depth in range(1, len(scope) + 1))
            hosts = (index.get((self._boxes[i].device, name)) for name in names)
            self._host[i] = next((host for host in hosts if host is not None), i)

    def hide_trivial(self) -> None:
        """Hides each trivial operation in what it is computed from, else in its only user."""
        sources: dict[int, list[int]] = {}
        targets: dict[int, list[int]] = {}
        for source, target, flow, _ in self._links:
            if flow is Flow.DATA:
                sources.setdefault(target, []).append(source)
                targets.setdefault(source, []).append(target)
        for i, box in enumerate(self._boxes):
            if box.kind is BoxKind.OPERATION and _is_a(box, TRIVIAL):
                for near in (sources.get(i, []), targets.get(i, [])):
                    if len(near) == 1 and self._can_hide(i, near[0]):
                        self._host[i] = near[0]
                        break

    def hide_ends(self) -> None:
        """Hides each group that nothing follows in the last operation before it on its device."""
        followed = {source for source, _, _, _ in self._links}
        last: dict[int, int] = {}
        for source, target, _, _ in self._links:
            if self._boxes[source].device == self._boxes[target].device:
                last[target] = source
        for i, host in last.items():
            if i not in followed and _is_a(self._boxes[i], _GROUPS) and self._found(host) != i:
                self._host[i] = host
                self._ends.add(i)

    def _can_hide(self, i: int, host: int) -> bool:
        box, other = self._boxes[i], self._boxes[host]
        is_op = other.kind in (BoxKind.OPERATION, BoxKind.ACCESS)
        return is_op and other.device == box.device and self._found(host) != i

    def _found(self, i: int) -> int:
        """Returns the box in which a box is hidden, itself if it is not."""
        while self._host[i] != i:
            self._host[i] = self._host[self._host[i]]
            i = self._host[i]
        return i

    def sketch(self) -> Sketch:
        """Returns the boxes that are not hidden, and the flows between them."""
        hosts = [self._found(i) for i in range(len(self._boxes))]
        members: dict[int, list[Box]] = {}
        for host, box in zip(hosts, self._boxes, strict=True):
            members.setdefault(host, []).append(box)
        number = {host: n for n, host in enumerate(sorted(members))}
        links = [link for link in self._links if link[1] not in self._ends]
        boxes = [self._with(host, members[host]) for host in number]
        return Sketch(self._boxes, links).merged(boxes, [number[host] for host in hosts])

    def _with(self, host: int, members: list[Box]) -> Box:
        own = self._boxes[host]
        if len(members) == 1:
            return own
        return replace(own, hidden=tuple(box for box in members if box is not own))


def _is_a(box: Box, types: Collection[str]) -> bool:
    """Whether a box is of an operation of one of these types, and of no function of that name."""
    return bool(box.ops) and box.ops[0].type in types and not box.ops[0].is_call

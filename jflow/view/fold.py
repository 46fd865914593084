"""Folds a large diagram: merges related boxes into one.

Scopes fold first, because they are what the user named. They fold at the deepest level that saves
enough boxes, the largest first, so that as much as possible stays as it is. Where there are too few
scopes, the diagram may have more boxes than requested; only if it has several times as many do
runs of boxes fold that follow each other on one device.

Arrows between folds can form a cycle, although operations never do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from jflow.base.cluster import Device
from jflow.view.model import Box, BoxKind, Diagram, arrows_between

RANGE = " … "
"""Stands between the first and the last name of a run."""

_POSTER = 3
"""How many times as many boxes as requested a diagram may have before runs fold."""

_Group = tuple[str, list[int]]
"""The name of a fold, and the indices of the boxes that it replaces."""


def folded(diagram: Diagram, max_boxes: int) -> Diagram:
    """Returns the diagram with boxes folded, so that about `max_boxes` or fewer remain.

    The members of a fold are on one device, and all of them are state, fed values or operations.
    """
    groups = _by_scope(diagram.boxes, max_boxes)
    if len(groups) > _POSTER * max_boxes:
        groups = _in_runs(diagram.boxes, groups, max_boxes)
    groups.sort(key=lambda group: group[1][0])
    boxes = tuple(_fold(name, [diagram.boxes[m] for m in members]) for name, members in groups)
    fold_of = {member: number for number, (_, members) in enumerate(groups) for member in members}
    flows = (
        (fold_of[arrow.source], fold_of[arrow.target], arrow.flow, arrow.values)
        for arrow in diagram.arrows
    )
    return Diagram(boxes, arrows_between(boxes, flows))


def _fold(name: str, members: Sequence[Box]) -> Box:
    """Merges boxes into one; returns the box itself if there is only one."""
    first = members[0]
    if len(members) == 1:
        return first
    ops = tuple(op for box in members for op in box.ops)
    return Box(_category(first), name, first.device, ops, members=tuple(members))


def _category(box: Box) -> BoxKind:
    return BoxKind.OPERATION if box.kind is BoxKind.ACCESS else box.kind


def _by_scope(boxes: Sequence[Box], max_boxes: int) -> list[_Group]:
    """Groups boxes by name scope, as far as needed to reach `max_boxes`."""
    excess = len(boxes) - max_boxes
    groups: list[_Group] = [(box.name, [number]) for number, box in enumerate(boxes)]
    if excess > 0:
        for name, members in _largest(_scopes(boxes, excess), excess):
            for member in members:
                groups[member] = (name, members)
    return list({members[0]: (name, members) for name, members in groups}.values())


def _scopes(boxes: Sequence[Box], excess: int) -> list[_Group]:
    """Returns the boxes of each scope, at the deepest level of scopes that saves enough boxes."""
    groups: list[_Group] = []
    for depth in range(max(len(box.scope) for box in boxes), 0, -1):
        scopes: dict[tuple[str, Device, BoxKind], list[int]] = {}
        for number, box in enumerate(boxes):
            if box.scope:
                name = "/".join(box.scope[:depth])
                scopes.setdefault((name, box.device, _category(box)), []).append(number)
        groups = [(name, members) for (name, _, _), members in scopes.items()]
        if sum(len(members) - 1 for _, members in groups) >= excess:
            break
    return groups


def _largest(groups: Iterable[_Group], excess: int) -> Iterator[_Group]:
    """Yields the largest groups until these save enough boxes."""
    for name, members in sorted(groups, key=lambda group: -len(group[1])):
        if excess <= 0:
            break
        yield name, members
        excess -= len(members) - 1


def _in_runs(boxes: Sequence[Box], groups: Sequence[_Group], max_boxes: int) -> list[_Group]:
    """Joins runs of groups with the same device and category, to leave about `max_boxes`."""
    parts: dict[tuple[Device, BoxKind], list[_Group]] = {}
    length = math.ceil(len(groups) / max_boxes)
    for name, members in groups:
        first = boxes[members[0]]
        if len(members) <= length:
            parts.setdefault((first.device, _category(first)), []).append((name, members))
    runs = [
        _run(part[start : start + length])
        for part in parts.values()
        for start in range(0, len(part), length)
    ]
    return runs + [group for group in groups if len(group[1]) > length]


def _run(groups: Sequence[_Group]) -> _Group:
    if len(groups) == 1:
        return groups[0]
    name = f"{groups[0][0]}{RANGE}{groups[-1][0]}"
    return name, [member for _, members in groups for member in members]

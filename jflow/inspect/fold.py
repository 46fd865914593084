"""Makes a large diagram readable: boxes that belong together become one.

Folding scopes is what the user's names ask for. It is done at the deepest level of scopes that is
enough, and there the largest scopes go first, so that as much as possible stays as it is. Where
names are too few for that, the picture may become larger than asked for; only where it would be
larger by far do runs of boxes fold that follow each other on one device.

Folds can be on a cycle of arrows although operations never are. The layout copes with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from jflow.cluster import Device
from jflow.inspect.diagram import Box, BoxKind, Diagram, joined

RANGE = " … "
"""Stands between the first and the last name of a run."""

_POSTER = 3
"""How many times larger than asked for a picture may be before runs fold."""

_Group = tuple[str, list[Box]]
"""What a fold is to be called, and what it replaces."""


def folded(diagram: Diagram, max_boxes: int) -> Diagram:
    """The diagram with folds for boxes, so that there are about `max_boxes` or fewer.

    A fold is of one device, and of variables only, of fed values only or of operations only.
    """
    groups = _by_scope(diagram.boxes, max_boxes)
    if len(groups) > _POSTER * max_boxes:
        groups = _in_runs(groups, max_boxes)
    box_of = {box: fold for group in groups for box, fold in _replaced(*group)}
    boxes = tuple(dict.fromkeys(box_of[box] for box in diagram.boxes))
    return Diagram(boxes, joined(diagram.arrows, box_of))


def _replaced(name: str, boxes: list[Box]) -> Iterator[tuple[Box, Box]]:
    """Each box with what it becomes; the only box of a group stays as it is."""
    first = boxes[0]
    if len(boxes) > 1:
        ops = [op for box in boxes for op in box.ops]
        first = Box(_category(first), name, first.device, ops, folded=tuple(boxes))
    yield from ((box, first) for box in boxes)


def _category(box: Box) -> BoxKind:
    return BoxKind.OPERATION if box.kind is BoxKind.ACCESS else box.kind


def _by_scope(boxes: Sequence[Box], max_boxes: int) -> list[_Group]:
    """All boxes in groups: alone, or with the others of their scope where that is needed."""
    excess = len(boxes) - max_boxes
    groups: dict[Box, _Group] = {box: (box.name, [box]) for box in boxes}
    if excess > 0:
        for name, members in _largest(_scopes(boxes, excess), excess):
            groups.update(dict.fromkeys(members, (name, members)))
    return list({id(members): (name, members) for name, members in groups.values()}.values())


def _scopes(boxes: Sequence[Box], excess: int) -> list[_Group]:
    """The boxes of each scope, at the deepest level of scopes that saves enough boxes."""
    groups: list[_Group] = []
    for depth in range(max(len(box.scope) for box in boxes), 0, -1):
        found: dict[tuple[str, Device, BoxKind], list[Box]] = {}
        for box in boxes:
            if box.scope:
                name = "/".join(box.scope[:depth])
                found.setdefault((name, box.device, _category(box)), []).append(box)
        groups = [(name, members) for (name, _, _), members in found.items()]
        if sum(len(members) - 1 for _, members in groups) >= excess:
            break
    return groups


def _largest(groups: Iterable[_Group], excess: int) -> Iterator[_Group]:
    """The largest groups, until they save enough boxes."""
    for name, members in sorted(groups, key=lambda group: -len(group[1])):
        if excess <= 0:
            break
        yield name, members
        excess -= len(members) - 1


def _in_runs(groups: Sequence[_Group], max_boxes: int) -> list[_Group]:
    """The groups, with neighbours of one device and category joined to about `max_boxes`."""
    parts: dict[tuple[Device, BoxKind], list[_Group]] = {}
    length = math.ceil(len(groups) / max_boxes)
    for name, members in groups:
        key = (members[0].device, _category(members[0]))
        if len(members) <= length:
            parts.setdefault(key, []).append((name, members))
    runs = [
        _run(part[start : start + length])
        for part in parts.values()
        for start in range(0, len(part), length)
    ]
    return runs + [group for group in groups if len(group[1]) > length]


def _run(groups: Sequence[_Group]) -> _Group:
    if len(groups) == 1:
        return groups[0]
    return f"{groups[0][0]}{RANGE}{groups[-1][0]}", [box for _, part in groups for box in part]

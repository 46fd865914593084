"""Makes a large diagram readable: boxes that belong together become one.

Folding scopes is what the user's names ask for. It is done at the deepest level of scopes that is
enough, and there the largest scopes go first, so that as much as possible stays as it is. Where
names are too few for that, the picture may become larger than asked for; only where it would be
larger by far do runs of operations fold that follow each other on one device.

Folds can be on a cycle of arrows although operations never are. The layout copes with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from jflow.cluster import Device
from jflow.inspect.diagram import Box, Diagram, Kind, joined

_POSTER = 3
"""How many times larger than asked for a picture may be before runs fold."""

_Group = list[Box]


def folded(diagram: Diagram, max_boxes: int) -> Diagram:
    """The diagram with folds for boxes, so that there are about `max_boxes` or fewer.

    A fold is of one device, and of variables only, of fed values only or of operations only.
    """
    box_of = {box: box for box in diagram.boxes}
    for name, group in _choose(diagram.boxes, max_boxes):
        fold = _fold(group, name)
        box_of.update(dict.fromkeys(group, fold))
    boxes = tuple(dict.fromkeys(box_of[box] for box in diagram.boxes))
    return Diagram(boxes, joined(diagram.arrows, box_of))


def _fold(group: _Group, name: str) -> Box:
    ops = [op for box in group for op in box.ops]
    return Box(_category(group[0]), name, group[0].device, ops, folded=tuple(group))


def _category(box: Box) -> Kind:
    return Kind.OPERATION if box.kind is Kind.ACCESS else box.kind


def _choose(boxes: Sequence[Box], max_boxes: int) -> list[tuple[str, _Group]]:
    """The names of folds and what they replace."""
    excess = len(boxes) - max_boxes
    if excess <= 0:
        return []
    chosen = _largest(_scopes(boxes, excess), excess)
    taken = {box for _, group in chosen for box in group}
    loose = [box for box in boxes if box not in taken]
    if len(chosen) + len(loose) > _POSTER * max_boxes:
        chosen += _runs(loose, max_boxes - len(chosen))
    return chosen


def _scopes(boxes: Sequence[Box], excess: int) -> list[tuple[str, _Group]]:
    """The boxes of each scope, at the deepest level of scopes that saves enough boxes."""
    groups: list[tuple[str, _Group]] = []
    for depth in range(max(len(box.scope) for box in boxes), 0, -1):
        found: dict[tuple[str, Device, Kind], _Group] = {}
        for box in boxes:
            if box.scope:
                name = "/".join(box.scope[:depth])
                found.setdefault((name, box.device, _category(box)), []).append(box)
        groups = [(name, group) for (name, _, _), group in found.items() if len(group) > 1]
        if sum(len(group) - 1 for _, group in groups) >= excess:
            break
    return groups


def _largest(groups: Iterable[tuple[str, _Group]], excess: int) -> list[tuple[str, _Group]]:
    chosen = []
    for name, group in sorted(groups, key=lambda item: -len(item[1])):
        if excess <= 0:
            break
        chosen.append((name, group))
        excess -= len(group) - 1
    return chosen


def _runs(boxes: Iterable[Box], target: int) -> list[tuple[str, _Group]]:
    """Folds runs of each device and category so that about `target` boxes are left."""
    parts: dict[tuple[Device, Kind], _Group] = {}
    for box in boxes:
        parts.setdefault((box.device, _category(box)), []).append(box)
    total = sum(map(len, parts.values()))
    length = math.ceil(total / max(target - len(parts), 1))
    runs = [
        part[start : start + length]
        for part in parts.values()
        for start in range(0, len(part), length)
    ]
    return [(f"{run[0].name} … {run[-1].name}", run) for run in runs if len(run) > 1]

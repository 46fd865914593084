"""Folds a large sketch: merges related boxes into one.

First each name scope is one box, because scopes are what the user and libraries named. Then they
open as long as there is room, the outer ones before those inside and a forward pass before its
gradients. Where there are too few scopes, the diagram may have more boxes than requested; only if
it has several times as many do runs of boxes fold that follow each other on one device.

Arrows between folds can form a cycle, although operations never do.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from jflow.base.cluster import Device
from jflow.view.model import Box, BoxKind, Sketch

RANGE = " … "
"""Stands between the first and the last name of a run."""

_POSTER = 3
"""How many times as many boxes as requested a diagram may have before runs fold."""


def folded(sketch: Sketch, max_boxes: int, n_fixed: int = 0) -> Sketch:
    """Returns the sketch with boxes folded, so that about `max_boxes` or fewer remain.

    The members of a fold are on one device, and all of them are state, fed values or operations.

    Args:
      sketch: the sketch.
      max_boxes: the number of boxes.
      n_fixed: the number of boxes at the beginning that stay as they are, and do not count.
    """
    boxes = sketch.boxes
    groups = _Opening(sketch, max_boxes, n_fixed).groups()
    if len(groups) > _POSTER * max_boxes:
        groups = _in_runs(boxes, groups, max_boxes)
    groups += [_Candidate(boxes[i].name, 0, [i]) for i in range(n_fixed)]
    groups.sort(key=lambda group: group.members[0])
    number_of = [0] * len(boxes)
    for number, group in enumerate(groups):
        for member in group.members:
            number_of[member] = number
    folds = [_fold(group.name, [boxes[member] for member in group.members]) for group in groups]
    return sketch.merged(folds, number_of)


def _fold(name: str, members: Sequence[Box]) -> Box:
    """Merges boxes into one; returns the box itself if there is only one."""
    first = members[0]
    if len(members) == 1:
        return first
    ops = tuple(op for box in members for op in box.all_ops)
    return Box(_category(first), name, first.device, ops, members=tuple(members))


def _category(box: Box) -> BoxKind:
    return BoxKind.OPERATION if box.kind is BoxKind.ACCESS else box.kind


@dataclass(frozen=True)
class _Candidate:
    """Boxes on one device and of one category that may become one: a name scope, or a run.

    Attributes:
      name: the scope, or the first and last name of the run.
      depth: the number of nested scopes that they share.
      members: indices of the boxes, in their order.
    """

    name: str
    depth: int
    members: list[int]


_Level = tuple[int, bool]
"""How late scopes open: their depth, and whether they belong to a backward pass."""


class _Opening:
    """Opens the outermost scopes of a sketch as long as there is room."""

    def __init__(self, sketch: Sketch, max_boxes: int, n_fixed: int) -> None:
        self._boxes = sketch.boxes
        self._scopes = [box.scope for box in sketch.boxes]
        self._max_boxes = max_boxes
        self._members = range(n_fixed, len(sketch.boxes))
        self._after: dict[int, list[int]] = {}
        for source, target, _, _ in sketch.links:
            self._after.setdefault(source, []).append(target)
        states = (box.name for box in sketch.boxes if box.kind is BoxKind.STATE)
        self._updates = {f"update_{name}" for name in states}

    def groups(self) -> list[_Candidate]:
        """Returns groups of boxes, each of which is to become one.

        Of the scopes of one level those with few parts open first, so that like things look alike.
        """
        closed: dict[_Level, list[tuple[_Candidate, list[_Candidate]]]] = {}
        pending = self._outermost()
        room = self._max_boxes - len(pending)
        groups: list[_Candidate] = []
        while closed or pending:
            for part in pending:
                inner = self._opened(part)
                closed.setdefault(self._level(part, inner), []).append((part, inner))
            pending = []
            for part, inner in sorted(closed.pop(min(closed)), key=lambda each: len(each[1])):
                if 1 < len(inner) <= room + 1:
                    room -= len(inner) - 1
                    pending.extend(inner)
                else:
                    groups.append(part)
        return groups

    def _level(self, part: _Candidate, inner: Sequence[_Candidate]) -> _Level:
        """Returns the level of a part: outer scopes and forward passes open first.

        Variables, their updates, and what contains no scopes open with scopes that are one deeper.
        """
        first = self._boxes[part.members[0]]
        is_late = (
            first.kind is BoxKind.STATE
            or all(len(each.members) == 1 for each in inner)
            or any("/update_" in self._boxes[member].name for member in part.members)
        )
        return part.depth - first.is_gradient + is_late, first.is_gradient

    def _outermost(self) -> list[_Candidate]:
        """Returns the parts that there are at least: several, unless there is one box."""
        parts = self._parts(self._members, 0)
        while len(parts) == 1 and len(parts[0].members) > 1:
            (part,) = parts
            is_run = RANGE in part.name
            parts = self._pieces(part) if is_run else self._parts(part.members, part.depth)
        return parts

    def _opened(self, part: _Candidate) -> list[_Candidate]:
        """Returns what a part consists of: itself if it is a box or the update of a variable."""
        if len(part.members) == 1 or self._is_update(part.name):
            return [part]
        if RANGE in part.name:
            return self._pieces(part)
        inner = self._parts(part.members, part.depth)
        if len(inner) > 1:
            return inner
        return self._singles(inner[0]) if RANGE in inner[0].name else self._opened(inner[0])

    def _singles(self, run: _Candidate) -> list[_Candidate]:
        return [_Candidate(self._boxes[i].name, run.depth + 1, [i]) for i in run.members]

    def _pieces(self, run: _Candidate) -> list[_Candidate]:
        """Returns the boxes of a run; shorter runs, if it is so long that these do not fit."""
        # A fifth of the room is for what is not in the run.
        length = max(2, math.ceil(1.25 * len(self._members) / self._max_boxes))
        if 2 * len(run.members) <= self._max_boxes or length >= len(run.members):
            return self._singles(run)
        pieces = (run.members[i : i + length] for i in range(0, len(run.members), length))
        return [
            self._named(_Candidate(self._boxes[piece[0]].name, run.depth + 1, piece))
            for piece in pieces
        ]

    def _is_update(self, scope: str) -> bool:
        """Whether a scope has all that an optimizer does to a variable."""
        start = scope.rfind("update_")
        return start >= 0 and scope[start:] in self._updates

    def _parts(self, members: Iterable[int], depth: int) -> list[_Candidate]:
        """Returns the scopes at a depth among some boxes, and the runs of boxes between scopes."""
        scopes: dict[tuple[str, Device, BoxKind], _Candidate] = {}
        runs: list[_Candidate] = []
        current: dict[tuple[Device, BoxKind], _Candidate] = {}
        visits: dict[int, list[list[int]]] = {}
        for member in members:
            box = self._boxes[member]
            place = (box.device, _category(box))
            is_op = place[1] is BoxKind.OPERATION
            scope = self._scopes[member]
            if len(scope) > depth:
                name = "/".join(scope[: depth + 1])
                part = scopes.setdefault((name, *place), _Candidate(name, depth + 1, []))
                if current.get(place) is not part:
                    visits.setdefault(id(part), []).append([])
                visits[id(part)][-1].append(member)
            elif place in current and current[place].depth == depth and is_op:
                part = current[place]
            else:
                part = _Candidate(box.name, depth, [])
                runs.append(part)
            part.members.append(member)
            current[place] = part
        named = [self._named(run) for run in runs]
        return self._without_cycles([*scopes.values(), *named], visits)

    def _named(self, run: _Candidate) -> _Candidate:
        last = self._boxes[run.members[-1]].name
        return run if len(run.members) == 1 else replace(run, name=f"{run.name}{RANGE}{last}")

    def _without_cycles(
        self, parts: list[_Candidate], visits: Mapping[int, list[list[int]]]
    ) -> list[_Candidate]:
        """Returns the parts; those on a cycle of flows are divided, by the visits of their scope.

        A library may name all layers of one class alike, so that other operations are between.
        """
        part_of = {member: number for number, part in enumerate(parts) for member in part.members}
        edges = {
            (part_of[member], part_of[after])
            for member in part_of
            for after in self._after.get(member, ())
            if part_of.get(after, part_of[member]) != part_of[member]
        }
        component = _components(len(parts), edges)
        size = Counter(component)
        divided: list[_Candidate] = []
        for part, label in zip(parts, component, strict=True):
            pieces = visits.get(id(part), [part.members])
            if size[label] == 1 or self._is_update(part.name):
                pieces = [part.members]
            divided.extend(replace(part, members=piece) for piece in pieces)
        return divided


def _components(n_vertices: int, edges: Collection[tuple[int, int]]) -> list[int]:
    """Returns the strongly connected component of each vertex, as a number."""
    if not edges:
        return list(range(n_vertices))
    # Only large graphs fold, and SciPy takes time to import.
    from scipy.sparse import coo_array  # noqa: PLC0415
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

    sources, targets = zip(*edges, strict=True)
    matrix = coo_array(([1] * len(edges), (sources, targets)), (n_vertices, n_vertices))
    _, labels = connected_components(matrix, connection="strong")
    return [int(label) for label in labels]


def _in_runs(
    boxes: Sequence[Box], groups: Sequence[_Candidate], max_boxes: int
) -> list[_Candidate]:
    """Joins runs of groups with the same device and category, to leave about `max_boxes`.

    A group that is larger than such a run stays as it is.
    """
    length = math.ceil(len(groups) / max_boxes)
    large = length * math.ceil(len(boxes) / len(groups))
    parts: dict[tuple[Device, BoxKind], list[_Candidate]] = {}
    for group in groups:
        first = boxes[group.members[0]]
        if len(group.members) <= large:
            parts.setdefault((first.device, _category(first)), []).append(group)
    runs = [
        _run(part[start : start + length])
        for part in parts.values()
        for start in range(0, len(part), length)
    ]
    return runs + [group for group in groups if len(group.members) > large]


def _run(groups: Sequence[_Candidate]) -> _Candidate:
    if len(groups) == 1:
        return groups[0]
    name = f"{groups[0].name}{RANGE}{groups[-1].name}"
    return replace(groups[0], name=name, members=[i for group in groups for i in group.members])

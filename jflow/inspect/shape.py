"""How each kind of box looks, how large it is, and what it says when the pointer rests on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from jflow.graph import Operation, ResourceRef, Tensor, VariableRef
from jflow.graph.primitives import state_of
from jflow.inspect.colour import PAPER, mixed
from jflow.inspect.diagram import Box, BoxKind
from jflow.inspect.fold import RANGE
from jflow.inspect.labels import (
    byte_text,
    counted,
    cut,
    listed,
    shape_text,
    short_name,
    size_bytes,
    text_width,
)
from jflow.inspect.layout import Rect
from jflow.inspect.markup import Element, group, number, path, rect, text

_NAME_LIMIT = 24
_DETAIL_LIMIT = 32
_TITLE_LIMIT = 40
_LID = 6.0
_SHEET = 4.0
_NOUNS = {BoxKind.VARIABLE: "variable", BoxKind.FEED: "fed value"}


def box_size(box: Box) -> tuple[float, float]:
    """Width and height in pixels."""
    inner = max(text_width(_label(box), 12, bold=True), text_width(_detail(box), 10), 60.0)
    return inner + 22, {BoxKind.VARIABLE: 50.0, BoxKind.FEED: 36.0}.get(box.kind, 40.0)


def add_box(parent: Element, box: Box, bounds: Rect, colour: str) -> None:
    """Draws a box with the colour of its device."""
    element = group(parent, f"op {box.kind.value}", title(box))
    look = {"fill": mixed(colour, PAPER, 0.8), "stroke": colour}
    if box.folded:
        sheet = Rect(bounds.x + _SHEET, bounds.y + _SHEET, bounds.width, bounds.height)
        add_outline(element, box.kind, sheet, kind="sheet", **look)
    add_outline(element, box.kind, bounds, kind="box", **look)
    drop = _LID if box.kind is BoxKind.VARIABLE else 0.0
    y = bounds.y + (bounds.height + drop) / 2
    text(element, bounds.middle, y - 2, _label(box), kind="name")
    text(element, bounds.middle, y + 12, _detail(box), kind="detail")


def add_outline(parent: Element, shape: BoxKind, bounds: Rect, **look: str) -> None:
    """The outline alone: a rounded box, a double one, a cylinder or a pill."""
    if shape is BoxKind.VARIABLE:
        _add_cylinder(parent, bounds, **look)
    elif shape is BoxKind.FEED:
        pill = look | {"fill": PAPER, "stroke_dasharray": "4 2.5"}
        rect(parent, bounds, rx=number(bounds.height / 2), **pill)
    else:
        rect(parent, bounds, rx="7", stroke_width="1.4", **look)
        if shape is BoxKind.ACCESS:
            inside = Rect(bounds.x + 3, bounds.y + 3, bounds.width - 6, bounds.height - 6)
            rect(parent, inside, rx="5", fill="none", stroke=look["stroke"])


def _add_cylinder(parent: Element, bounds: Rect, **look: str) -> None:
    half = number(bounds.width / 2)
    rect(parent, bounds, rx=half, ry=number(_LID), stroke_width="1.4", **look)
    lid = f"M{number(bounds.x)},{number(bounds.y + _LID)}a{half},{number(_LID)} 0 0 0 "
    lid += f"{number(bounds.width)},0"
    path(parent, lid, fill="none", stroke=look["stroke"], stroke_width="1.4")


def title(box: Box) -> str:
    """Everything that is known of a box, a fact a line."""
    return "\n".join((*_facts(box), *([f"made at {box.made_at}"] if box.made_at else [])))


def _facts(box: Box) -> Iterator[str]:
    if box.folded:
        yield f"{box.name} ({_count(box)}) on {box.device}"
        names = [_member(part) for part in box.folded]
        yield from names[:_TITLE_LIMIT]
        if len(names) > _TITLE_LIMIT:
            yield f"… and {len(names) - _TITLE_LIMIT} more"
        return
    yield box.name
    if box.kind is BoxKind.FEED:
        yield f"fed with each step: {_subject(box)}"
    elif box.kind is BoxKind.VARIABLE:
        refs = VariableRef | ResourceRef
        container = box.subject.container if isinstance(box.subject, refs) else ""
        kind = box.subject.kind if isinstance(box.subject, ResourceRef) else "variable"
        yield f"{kind} {_subject(box)} in container {container!r}"
        yield from (f"read by {op.name}" for op in box.ops if op.outputs)
    else:
        yield f"type: {box.ops[0].type}"
        yield f"outputs: {_outputs(box.ops[0]) or 'none'}"
    yield f"device: {box.device}"


def _member(part: Box) -> str:
    is_op = part.kind in (BoxKind.OPERATION, BoxKind.ACCESS)
    return f"{part.name}  {part.ops[0].type if is_op else _subject(part)}".rstrip()


def _label(box: Box) -> str:
    ends = box.name.split(RANGE)
    name = RANGE.join(short_name(end, _NAME_LIMIT // len(ends)) for end in ends)
    return f"{name} ({_count(box)})" if box.folded else name


def _count(box: Box) -> str:
    return counted(len(box.folded), _NOUNS.get(box.kind, "op"))


def _detail(box: Box) -> str:
    """The second line of a box."""
    if box.folded and box.kind is BoxKind.OPERATION:
        types = Counter(op.type for op in box.ops).most_common()
        return listed((f"{count} {kind}" for kind, count in types), _DETAIL_LIMIT)
    if box.folded:
        kinds = Tensor | VariableRef
        subjects = [part.subject for part in box.folded if isinstance(part.subject, kinds)]
        return f"{byte_text(size_bytes(subjects))} in all"
    if box.kind in (BoxKind.VARIABLE, BoxKind.FEED):
        return _subject(box)
    (op,) = box.ops
    if box.kind is BoxKind.ACCESS:
        return f"{op.type} {short_name(state_of(op.eqn)[0].name, _NAME_LIMIT)}"
    return f"{cut(op.type, _NAME_LIMIT)} {_outputs(op, 1)}".strip()


def _subject(box: Box) -> str:
    if isinstance(box.subject, ResourceRef):
        return box.subject.kind
    return "" if box.subject is None else shape_text(box.subject)


def _outputs(op: Operation, limit: int | None = None) -> str:
    shown = ", ".join(shape_text(tensor) for tensor in op.outputs[:limit])
    hidden = len(op.outputs[limit:]) if limit is not None else 0
    return f"{shown} +{hidden}" if hidden else shown

"""Texts of boxes and arrows: a short label, a detail line, and a title with all facts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from jflow.base.text import bytes_text, seconds_text
from jflow.base.values import TensorSpec
from jflow.view.fold import RANGE
from jflow.view.model import (
    Arrow,
    Box,
    BoxKind,
    Diagram,
    Flow,
    OpInfo,
    Prediction,
    TensorInfo,
    spec_bytes,
    total_bytes,
)

_NAME_LIMIT = 24
_DETAIL_LIMIT = 32
_MEMBER_LIMIT = 40
_VALUE_LIMIT = 20
_NOUNS = {BoxKind.STATE: "variable", BoxKind.FEED: "fed value"}


def box_label(box: Box) -> str:
    """Returns the short name of a box, with the number of its members if it is a fold."""
    ends = box.name.split(RANGE)
    name = RANGE.join(short_name(end, _NAME_LIMIT // len(ends)) for end in ends)
    return f"{name} ({_count(box)})" if box.members else name


def box_detail(box: Box) -> str:
    """Returns the second line of a box: type and shape; for a fold, its types or total bytes."""
    if box.members and box.kind is BoxKind.OPERATION:
        types = Counter(op.type for op in box.ops).most_common()
        return listed((f"{count} {kind}" for kind, count in types), _DETAIL_LIMIT)
    if box.members:
        return f"{bytes_text(sum(map(_box_bytes, box.members)))} in all"
    if box.kind in (BoxKind.STATE, BoxKind.FEED):
        return _subject(box)
    (op,) = box.ops
    if box.kind is BoxKind.ACCESS:
        return f"{op.type} {short_name(op.uses[0], _NAME_LIMIT)}"
    return f"{cut(op.type, _NAME_LIMIT)} {_outputs(op, 1)}".strip()


def box_title(box: Box) -> str:
    """Returns all facts about a box, one per line."""
    return "\n".join((*_box_facts(box), *([f"made at {box.made_at}"] if box.made_at else [])))


def prediction_text(prediction: Prediction) -> str:
    """Formats the predicted time of a step and its lower bound."""
    return (
        f"placed by {prediction.strategy}: predicted step time "
        f"{seconds_text(prediction.seconds)}, lower bound {seconds_text(prediction.lower_bound)}"
    )


def arrow_label(arrow: Arrow) -> str:
    """Returns the size of what an arrow sends to another device, "" if it sends nothing."""
    return bytes_text(total_bytes(arrow.sent)) if arrow.sent else ""


def arrow_title(diagram: Diagram, arrow: Arrow) -> str:
    """Returns all facts about an arrow, one per line."""
    return "\n".join(_arrow_facts(diagram, arrow))


def _box_facts(box: Box) -> Iterator[str]:
    if box.members:
        yield f"{box.name} ({_count(box)}) on {box.device}"
        names = [_member(part) for part in box.parts]
        yield from names[:_MEMBER_LIMIT]
        if len(names) > _MEMBER_LIMIT:
            yield f"… and {len(names) - _MEMBER_LIMIT} more"
        return
    yield box.name
    if box.kind is BoxKind.FEED:
        yield f"fed with each step: {_subject(box)}"
    elif box.kind is BoxKind.STATE:
        yield from _state_facts(box)
    else:
        yield f"type: {box.ops[0].type}"
        yield f"outputs: {_outputs(box.ops[0]) or 'none'}"
    yield f"device: {box.device}"
    yield from (f"with {_member(hidden)}" for hidden in box.hidden[:_MEMBER_LIMIT])
    yield from _reason_facts(box)


def _reason_facts(box: Box) -> Iterator[str]:
    # Of state, the reason of the operation that stands for it; reads go where the state is.
    is_state = box.kind is BoxKind.STATE
    ops = (op for op in box.ops if op.name == box.name or not is_state)
    reason = next((op.reason for op in ops), None)
    if reason is None:
        return
    yield f"why: {reason.why}"
    if not is_state:
        yield f"predicted to take {seconds_text(reason.seconds)}"
    other = reason.best_alternative
    if other is not None:
        yield f"best alternative: {other[0]}, where the step takes {seconds_text(other[1])}"


def _state_facts(box: Box) -> Iterator[str]:
    if box.state is not None:
        yield f"{box.state.kind} {_subject(box)} in container {box.state.container!r}"
    yield from (f"read by {op.name}" for op in box.ops if op.outputs)


def _arrow_facts(diagram: Diagram, arrow: Arrow) -> Iterator[str]:
    source, target = diagram.boxes[arrow.source], diagram.boxes[arrow.target]
    yield f"{source.name} → {target.name}"
    for value in arrow.values[:_VALUE_LIMIT]:
        yield _value(value, arrow)
    if len(arrow.values) > _VALUE_LIMIT:
        yield f"… and {len(arrow.values) - _VALUE_LIMIT} more"
    if arrow.flow is Flow.CONTROL:
        yield "runs after it, without data"
    elif arrow.flow is Flow.STATE:
        yield "the same variable"
    if arrow.crosses:
        yield f"from {source.device}"
        yield f"to {target.device}"
    if arrow.sent:
        yield f"{counted(len(arrow.sent), 'send')}, {bytes_text(total_bytes(arrow.sent))} a step"


def _value(value: TensorInfo, arrow: Arrow) -> str:
    words = f"{spec_text(value.spec)}  {value.name}"
    if arrow.crosses:
        words += f"  {bytes_text(value.n_bytes)}"
        if value not in arrow.sent:
            words += ", sent with another arrow"
    return words


def _member(member: Box) -> str:
    is_op = member.kind in (BoxKind.OPERATION, BoxKind.ACCESS)
    return f"{member.name}  {member.ops[0].type if is_op else _subject(member)}".rstrip()


def _count(box: Box) -> str:
    inside = box.parts if box.kind is BoxKind.OPERATION else box.members
    return counted(len(inside), _NOUNS.get(box.kind, "op"))


def _subject(box: Box) -> str:
    """Returns the type of a fed value or variable, or the kind of a resource."""
    if box.fed is not None:
        return spec_text(box.fed.spec)
    if box.state is None:
        return ""
    return box.state.kind if box.state.spec is None else spec_text(box.state.spec)


def _box_bytes(box: Box) -> int:
    spec = box.fed.spec if box.fed else box.state.spec if box.state else None
    return 0 if spec is None else spec_bytes(spec)


def _outputs(op: OpInfo, limit: int | None = None) -> str:
    shown = ", ".join(spec_text(value.spec) for value in op.outputs[:limit])
    hidden = len(op.outputs[limit:]) if limit is not None else 0
    return f"{shown} +{hidden}" if hidden else shown


_KINDS = {"bfloat": "bf", "float": "f", "uint": "u", "int": "i", "complex": "c"}
_DTYPE = re.compile(r"(bfloat|float|uint|int|complex)(\d.*)")


def spec_text(spec: TensorSpec) -> str:
    """Formats dtype and shape in JAX's short notation: "f32[32,?]"; "?" is an unknown size."""
    match = _DTYPE.fullmatch(spec.dtype.name)
    kind = _KINDS[match[1]] + match[2] if match else spec.dtype.name
    sizes = spec.shape
    shown = "..." if sizes is None else ",".join("?" if n is None else str(n) for n in sizes)
    return f"{kind}[{shown}]"


def counted(count: int, noun: str) -> str:
    """Formats a number with its noun, such as "1 send" or "2 sends"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def short_name(name: str, limit: int) -> str:
    """Shortens a name to `limit` characters: drops its outer scopes, then its middle."""
    if len(name) <= limit:
        return name
    parts = name.split("/")
    for start in range(1, len(parts)):
        candidate = "…/" + "/".join(parts[start:])
        if len(candidate) <= limit:
            return candidate
    return cut(parts[-1], limit)


def cut(text: str, limit: int) -> str:
    """Shortens a text to `limit` characters, with "…" in place of its middle."""
    if len(text) <= limit:
        return text
    head = limit // 2
    return text[:head] + "…" + text[len(text) - (limit - 1 - head) :]


def listed(words: Iterable[str], limit: int) -> str:
    """Joins words with commas; ends in "…" where `limit` characters are not enough."""
    line = ""
    for word in words:
        longer = f"{line}, {word}" if line else word
        if line and len(longer) > limit:
            return f"{line}, …"
        line = longer
    return line

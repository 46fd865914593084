"""Writes diagrams as JSON, in Graphviz's DOT language, and as Mermaid flowcharts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from jflow.base.text import printable
from jflow.base.values import TensorSpec
from jflow.view.captions import (
    arrow_label,
    box_detail,
    box_label,
    box_title,
    prediction_text,
)
from jflow.view.model import Arrow, Box, BoxKind, Diagram, Flow, OpInfo, StateInfo, TensorInfo

JSON_VERSION = 1
"""Grows with each change of the JSON form that is more than a new key."""

_DOT_SHAPES = {
    BoxKind.OPERATION: "shape=box, style=rounded",
    BoxKind.ACCESS: "shape=box, style=rounded, peripheries=2",
    BoxKind.STATE: "shape=cylinder",
    BoxKind.FEED: 'shape=box, style="rounded,dashed"',
}
_DOT_LINES = {
    Flow.DATA: "",
    Flow.CONTROL: "style=dotted",
    Flow.STATE: 'penwidth=3, color="gray"',
}
_MERMAID_SHAPES = {
    BoxKind.OPERATION: '["{}"]',
    BoxKind.ACCESS: '[["{}"]]',
    BoxKind.STATE: '[("{}")]',
    BoxKind.FEED: '(["{}"])',
}
_MERMAID_LINES = {Flow.DATA: "-->", Flow.CONTROL: "-.->", Flow.STATE: "==>"}

# Mermaid decodes "#34;" after it has parsed its own syntax, so encoded characters mean nothing in
# it. It also drops a semicolon from lines with the word "style" or "classDef" and a colon, so these
# words are broken up, and it strips leading spaces.
_MERMAID_SPECIAL = re.compile(r"[^\w /:,…()\[\].+-]|^ |s(?=tyle)|c(?=lassDef)")


def json_text(diagram: Diagram) -> str:
    """Returns the diagram as a JSON object; `jflow.inspect.to_json` documents its keys."""
    content = {
        "format": "jflow.diagram",
        "version": JSON_VERSION,
        "devices": [str(device) for device in diagram.devices],
        "boxes": [_box(box) for box in diagram.boxes],
        "arrows": [_arrow(arrow) for arrow in diagram.arrows],
        "prediction": asdict(diagram.prediction) if diagram.prediction else None,
    }
    return json.dumps(content, indent=1) + "\n"


def dot_text(diagram: Diagram) -> str:
    """Returns the diagram in the DOT language, with a cluster for each device."""
    return "\n".join(_dot_lines(diagram)) + "\n"


def mermaid_text(diagram: Diagram) -> str:
    """Returns the diagram as a Mermaid flowchart, with a subgraph for each device."""
    return "\n".join(_mermaid_lines(diagram)) + "\n"


def _box(box: Box) -> dict[str, Any]:
    return {
        "kind": box.kind.value,
        "name": box.name,
        "device": str(box.device),
        "made_at": box.made_at or None,
        "operations": [_op(op) for op in box.ops],
        "state": _state(box.state) if box.state else None,
        "fed": _value(box.fed) if box.fed else None,
        "members": [_box(member) for member in box.members],
        "hidden": [_box(hidden) for hidden in box.hidden],
    }


def _op(op: OpInfo) -> dict[str, Any]:
    outputs = [_value(value) for value in op.outputs]
    reason = None
    if op.reason is not None:
        reason = {
            "why": op.reason.why,
            "seconds": op.reason.seconds,
            "alternatives": dict(op.reason.alternatives),
        }
    return {
        "name": op.name,
        "type": op.type,
        "outputs": outputs,
        "uses": list(op.uses),
        "reason": reason,
    }


def _state(state: StateInfo) -> dict[str, Any]:
    metadata = {"kind": state.kind, "name": state.name, "container": state.container}
    return metadata | (_spec(state.spec) if state.spec else {"dtype": None, "shape": None})


def _value(value: TensorInfo) -> dict[str, Any]:
    return {"name": value.name, **_spec(value.spec)}


def _spec(spec: TensorSpec) -> dict[str, Any]:
    return {"dtype": spec.dtype.name, "shape": None if spec.shape is None else list(spec.shape)}


def _arrow(arrow: Arrow) -> dict[str, Any]:
    return {
        "source": arrow.source,
        "target": arrow.target,
        "flow": arrow.flow.value,
        "crosses": arrow.crosses,
        "values": [_value(value) for value in arrow.values],
        "sent": [value.name for value in arrow.sent],
    }


def _dot_lines(diagram: Diagram) -> Iterator[str]:
    yield "digraph {"
    yield '  node [fontname="Helvetica"];'
    if diagram.prediction is not None:
        yield f"  label={dot_string(prediction_text(diagram.prediction))};"
    for number, device in enumerate(diagram.devices):
        yield f"  subgraph cluster_{number} {{"
        yield f"    label={dot_string(str(device))};"
        for index, box in enumerate(diagram.boxes):
            if box.device == device:
                label = dot_string(f"{box_label(box)}\n{box_detail(box)}".rstrip())
                tooltip = dot_string(box_title(box))
                yield (
                    f"    box{index} [label={label}, {_DOT_SHAPES[box.kind]}, tooltip={tooltip}];"
                )
        yield "  }"
    for arrow in diagram.arrows:
        label = f"label={dot_string(arrow_label(arrow))}" if arrow.sent else ""
        look = ", ".join(filter(None, (label, _DOT_LINES[arrow.flow])))
        yield f"  box{arrow.source} -> box{arrow.target}" + (f" [{look}];" if look else ";")
    yield "}"


def dot_string(text: str) -> str:
    """Quotes a text for DOT; Graphviz decodes escapes and entities in it."""
    escaped = printable(text, allowed="\n").replace("&", "&amp;").replace("\\", "\\\\")
    return '"' + escaped.replace('"', '\\"').replace("\n", "\\n") + '"'


def _mermaid_lines(diagram: Diagram) -> Iterator[str]:
    yield "flowchart TB"
    for number, device in enumerate(diagram.devices):
        yield f'  subgraph device{number}["{_mermaid_string(str(device))}"]'
        for index, box in enumerate(diagram.boxes):
            if box.device == device:
                lines = filter(None, (box_label(box), box_detail(box)))
                label = "<br/>".join(map(_mermaid_string, lines))
                yield f"    box{index}{_MERMAID_SHAPES[box.kind].format(label)}"
        yield "  end"
    for arrow in diagram.arrows:
        line = _MERMAID_LINES[arrow.flow]
        label = f'|"{_mermaid_string(arrow_label(arrow))}"|' if arrow.sent else ""
        yield f"  box{arrow.source} {line}{label} box{arrow.target}"


def _mermaid_string(text: str) -> str:
    """Escapes a text for a quoted string of Mermaid."""
    return _MERMAID_SPECIAL.sub(lambda match: f"#{ord(match[0])};", printable(text, allowed="\n"))

"""Pictures of steps of which only the plans are known."""

from __future__ import annotations

from jflow.view.model import BoxKind, Flow
from jflow.view.sampled import step_diagram, step_picture
from tests.plan.trace.test_samples import PS, STEP, WORKER


def test_programs_calls_and_variables_are_boxes_and_values_arrows_between_devices() -> None:
    diagram = step_diagram(STEP)
    boxes = [(box.name, box.kind, box.device) for box in diagram.boxes]
    assert boxes == [
        ("w", BoxKind.STATE, PS),
        ("read", BoxKind.OPERATION, PS),
        ("update", BoxKind.OPERATION, PS),
        ("fed value 0", BoxKind.OPERATION, WORKER),
        ("dot", BoxKind.OPERATION, WORKER),
        ("host", BoxKind.OPERATION, WORKER),
    ]
    names = [name for name, _, _ in boxes]
    arrows = {
        (names[one.source], names[one.target], one.flow, one.crosses) for one in diagram.arrows
    }
    assert arrows == {
        ("w", "read", Flow.DATA, False),
        ("w", "update", Flow.DATA, False),
        ("read", "dot", Flow.DATA, True),
        ("fed value 0", "dot", Flow.DATA, False),
        ("dot", "update", Flow.DATA, True),
        ("dot", "host", Flow.DATA, False),
    }


def test_the_picture_names_them() -> None:
    image = step_picture(STEP)
    for name in ("w", "read", "update", "dot", "data that crosses devices"):
        assert f">{name}<" in image
    assert "0 sends" not in image

"""The diagram of a placed graph as data, before any drawing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jflow as tf
from jflow.base.cluster import Device
from jflow.base.values import TensorSpec
from jflow.compiler.graph import Operation
from jflow.inspect import Arrow, Box, BoxKind, Diagram, Flow, diagram
from jflow.view.model import arrows_between
from tests.view.test_picture import (
    PS,
    WORKER,
    nameless,
    needed,
    ordered_read,
    placed,
    toy,
    training_step,
)

FLOAT = TensorSpec((), "float32")


def box(found: Diagram, name: str) -> Box:
    """The only box of a name."""
    (one,) = (each for each in found.boxes if each.name == name)
    return one


def arrows(found: Diagram, flow: Flow) -> list[tuple[str, str]]:
    """Names of the boxes at the ends of the arrows of a kind."""
    names = [each.name for each in found.boxes]
    return [(names[a.source], names[a.target]) for a in found.arrows if a.flow is flow]


def pipeline() -> dict[Operation, Device]:
    """Everything on the worker, but queues on the server."""
    with tf.Graph().as_default():
        files = tf.FIFOQueue(4, tf.string, shapes=[()], name="files")
        key, line = tf.TextLineReader(name="reader").read(files)
        rows = tf.FIFOQueue(4, tf.float32, shapes=[(2,)], name="rows")
        fed = tf.placeholder("float32", (None, 2), name="fed")
        put = rows.enqueue_many([fed], name="put")
        return placed(needed(tf.numpy.sum(rows.dequeue(name="take")), put, key, line), "rows")


def test_every_operation_is_in_one_box() -> None:
    for placement in (toy(), training_step(), nameless(), pipeline()):
        for limit in (None, 10):
            found = diagram(placement, limit)
            names = sorted(op.name for each in found.boxes for op in each.all_ops)
            assert names == sorted(op.name for op in placement)


def test_diagrams_of_equal_programs_are_equal() -> None:
    assert diagram(training_step()) == diagram(training_step())
    assert hash(diagram(toy())) == hash(diagram(toy()))
    assert diagram(toy()) != diagram(training_step())


def test_diagram_does_not_depend_on_the_order_of_the_placement() -> None:
    placement = training_step()
    assert diagram({op: placement[op] for op in reversed(list(placement))}) == diagram(placement)


def test_operation_has_its_type_outputs_and_what_it_uses() -> None:
    found = diagram(toy())
    (step,) = box(found, "step").ops
    assert (step.type, step.uses) == ("update", ("x",))
    assert [(value.name, value.spec) for value in step.outputs] == [("step:0", FLOAT)]
    assert box(found, "step").kind is BoxKind.ACCESS
    assert box(found, "mul").kind is BoxKind.OPERATION
    assert "test_picture.py" in box(found, "mul").made_at


def test_variable_has_its_container_and_type() -> None:
    with tf.Graph().as_default(), tf.container("models"):
        v = tf.Variable(np.zeros((2, 3), np.float32), name="v")
        found = diagram(dict.fromkeys(needed(v.value()), PS))
    (variable,) = found.boxes
    assert variable.kind is BoxKind.STATE
    assert variable.state is not None
    assert (variable.state.kind, variable.state.container) == ("variable", "models")
    assert variable.state.spec == TensorSpec((2, 3), "float32")


def test_queues_and_readers_are_state_of_their_kinds() -> None:
    found = diagram(pipeline())
    states = {each.name: each.state for each in found.boxes if each.kind is BoxKind.STATE}
    assert {name: state.kind for name, state in states.items() if state} == {
        "files": "queue",
        "reader": "reader",
        "rows": "queue",
    }
    assert all(state.spec is None for state in states.values() if state)
    assert ("rows", "take") in [*arrows(found, Flow.STATE)]
    assert ("put", "rows") in [*arrows(found, Flow.STATE)]


def test_fed_value_has_its_unknown_sizes() -> None:
    fed = box(diagram(pipeline()), "fed:0").fed
    assert fed is not None
    assert fed.spec == TensorSpec((None, 2), "float32")


def test_control_and_state_flow_without_values() -> None:
    found = diagram(ordered_read())
    assert ("update", "read_value") in arrows(found, Flow.CONTROL)
    assert ("update", "v") in arrows(found, Flow.STATE)
    assert not [a for a in found.arrows if a.flow is not Flow.DATA and (a.values or a.sent)]


def test_value_is_sent_to_a_device_by_one_arrow() -> None:
    with tf.Graph().as_default():
        x = tf.constant(np.zeros((3, 4), np.float32), name="x")
        found = diagram(placed(needed(x * 2.0 + x * 3.0), "x"))
    crossing = [arrow for arrow in found.arrows if arrow.crosses]
    assert [len(arrow.values) for arrow in crossing] == [1, 1]
    assert [[value.n_bytes for value in arrow.sent] for arrow in crossing] == [[48], []]


def test_devices_are_sorted_and_those_in_use() -> None:
    assert diagram(toy()).devices == (PS, WORKER)
    assert diagram({}).devices == ()


def test_fold_has_the_boxes_that_it_replaces() -> None:
    whole, small = diagram(training_step(5)), diagram(training_step(5), 10)
    members = [member for each in small.boxes for member in each.members or (each,)]
    names = [each.name for member in members for each in (member, *member.hidden)]
    assert sorted(names) == sorted(each.name for each in whole.boxes)
    fold = box(small, "gradients")
    assert {member.device for member in fold.members} == {fold.device}
    assert fold.ops == tuple(op for member in fold.members for op in member.all_ops)


def test_folding_keeps_every_value_that_is_sent() -> None:
    def sent(found: Diagram) -> set[Any]:
        boxes = found.boxes
        return {(v, boxes[arrow.target].device) for arrow in found.arrows for v in arrow.sent}

    placement = training_step(5)
    assert sent(diagram(placement, 5)) == sent(diagram(placement))


def test_limit_has_to_be_positive() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        diagram(toy(), 0)


def test_arrows_inside_a_box_are_gone_and_those_of_one_kind_are_one() -> None:
    boxes = [Box(BoxKind.OPERATION, name, WORKER) for name in "ab"]
    flows = [(0, 1, Flow.CONTROL, ()), (0, 0, Flow.DATA, ()), (0, 1, Flow.CONTROL, ())]
    assert arrows_between(boxes, flows) == (Arrow(0, 1, Flow.CONTROL, False),)

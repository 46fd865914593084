"""Pictures are checked as documents: what they say, and where their shapes are."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Mapping
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np
import pytest

import jflow as tf
from jflow.base.cluster import Device, Task
from jflow.compiler.graph import Operation
from jflow.compiler.graph.primitives import read_p
from jflow.inspect import picture, save_picture
from jflow.view.drawing.markup import SEND, device_colour

SVG = "{http://www.w3.org/2000/svg}"
PS = Device(Task("ps", 0), "CPU", 0)
WORKER = Device(Task("worker", 0), "CPU", 0)

Placement = Mapping[Operation, Device]


# Graphs -------------------------------------------------------------------------------------------


def needed(*targets: Any) -> list[Operation]:
    """Operations that targets need; placeholders are fed."""
    pending = [getattr(target, "op", target) for target in targets]
    found: set[Operation] = set()
    while pending:
        op = pending.pop()
        if op not in found and op.type != "placeholder":
            found.add(op)
            pending += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
    return [op for op in targets[0].graph.get_operations() if op in found]


def placed(ops: Iterable[Operation], *on_ps: str) -> Placement:
    """Operations whose names start with one of `on_ps` on the server, the others on the worker."""
    return {op: PS if op.name.startswith(on_ps) and on_ps else WORKER for op in ops}


def toy() -> Placement:
    with tf.Graph().as_default():
        x = tf.Variable(np.float32(1), name="x")
        y = tf.nn.relu(x * 3.0, name="y")
        step = x.assign_add(y, name="step")
        return placed(needed(step), "x", "step")


def training_step(n_layers: int = 2) -> Placement:
    sizes = [784, *[128] * (n_layers - 1), 10]
    with tf.Graph().as_default():
        h = tf.placeholder("float32", (32, 784), name="images")
        variables = []
        for i, shape in enumerate(pairwise(sizes)):
            with tf.name_scope(f"layer{i}"):
                weights = tf.Variable(np.zeros(shape, np.float32), name="weights")
                bias = tf.Variable(np.zeros(shape[1], np.float32), name="bias")
            h = tf.nn.relu(tf.numpy.dot(h, weights) + bias)
            variables += [weights, bias]
        loss = tf.numpy.mean(h, name="loss")
        slopes = tf.gradients(loss, variables)
        updates = [
            variable.assign_sub(slope * 0.1, name="update")
            for variable, slope in zip(variables, slopes, strict=True)
        ]
        return placed(needed(tf.group(*updates, name="train"), loss), "layer", "update")


def initializer() -> Placement:
    with tf.Graph().as_default():
        for i in range(3):
            tf.Variable(np.zeros(i + 1, np.float32), name=f"v{i}")
        return placed(needed(tf.global_variables_initializer()), "v")


def ordered_read() -> Placement:
    with tf.Graph().as_default():
        v = tf.Variable(np.zeros(3, np.float32), name="v")
        update = v.assign_add(v * 2.0, name="update")
        with tf.control_dependencies([update]):
            read = v.read_value()
        return placed(needed(tf.numpy.sum(read, name="total")), "v", "update", "read")


def nameless(n_ops: int = 500) -> Placement:
    devices = [Device(Task("worker", i), "CPU", 0) for i in range(3)]
    with tf.Graph().as_default():
        y = tf.placeholder("float32", (2,), name="x")
        before = y
        for _ in range(n_ops // 2):
            y, before = y * before + 1.0, y
        return {op: devices[i // 7 % 3] for i, op in enumerate(needed(y))}


GRAPHS = [toy, training_step, lambda: training_step(5), initializer, ordered_read, nameless]


# Reading pictures ---------------------------------------------------------------------------------


class Picture:
    """What a picture says."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.root = ET.fromstring(text)

    def groups(self, kind: str) -> list[ET.Element]:
        """Groups that have the classes in `kind`."""
        wanted = set(kind.split())
        return [g for g in self.root.iter(f"{SVG}g") if wanted <= set(g.get("class", "").split())]

    def titles(self, kind: str) -> list[str]:
        return [g.findtext(f"{SVG}title", "") for g in self.groups(kind)]

    def names(self, kind: str = "op") -> list[str]:
        """First lines of the titles."""
        return [title.split("\n")[0] for title in self.titles(kind)]

    def title(self, name: str, kind: str = "op") -> str:
        """The only title that starts with the line `name`."""
        (title,) = (t for t in self.titles(kind) if t.split("\n")[0] == name)
        return title

    def texts(self, kind: str) -> list[str]:
        return [t.text or "" for t in self.root.iter(f"{SVG}text") if t.get("class") == kind]

    def rects(self, kind: str) -> list[tuple[float, float, float, float]]:
        """Left, top, right and bottom of the rectangles of a class."""
        sides = ("x", "y", "width", "height")
        found = [
            [float(r.get(side, "")) for side in sides]
            for r in self.root.iter(f"{SVG}rect")
            if r.get("class") == kind
        ]
        return [(x, y, x + width, y + height) for x, y, width, height in found]


def drawn(placement: Placement, **options: Any) -> Picture:
    return Picture(picture(placement, **options))


def overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


# The document -------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", GRAPHS)
def test_picture_is_well_formed_and_needs_nothing_else(graph: Callable[[], Placement]) -> None:
    found = drawn(graph())
    assert found.root.tag == f"{SVG}svg"
    tags = {element.tag.removeprefix(SVG) for element in found.root.iter()}
    assert tags <= {"svg", "style", "g", "rect", "path", "text", "title"}
    assert "url(" not in found.text
    assert "@import" not in found.text
    assert found.text.count("http") == 1  # the name of the format


@pytest.mark.parametrize("graph", GRAPHS)
def test_picture_does_not_depend_on_the_order_of_the_placement(
    graph: Callable[[], Placement],
) -> None:
    placement = graph()
    backwards = {op: placement[op] for op in reversed(list(placement))}
    assert picture(backwards) == picture(placement)


def test_same_program_gives_the_same_picture() -> None:
    assert picture(training_step()) == picture(training_step())


def test_empty_placement_gives_a_picture_that_says_so() -> None:
    assert drawn({}).texts("name") == ["nothing to run"]


def test_saved_picture_is_the_picture(tmp_path: Path) -> None:
    placement = toy()
    save_picture(placement, tmp_path / "toy.svg")
    assert (tmp_path / "toy.svg").read_bytes().decode() == picture(placement)


def test_picture_of_no_boxes_cannot_be_asked_for() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        picture(toy(), max_boxes=0)


# Boxes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", GRAPHS)
def test_boxes_do_not_overlap(graph: Callable[[], Placement]) -> None:
    boxes = drawn(graph()).rects("box")
    assert boxes
    assert not [pair for pair in combinations(boxes, 2) if overlap(*pair)]


@pytest.mark.parametrize("graph", GRAPHS)
def test_everything_is_on_the_paper(graph: Callable[[], Placement]) -> None:
    found = drawn(graph())
    width, height = float(found.root.get("width", "")), float(found.root.get("height", ""))
    for left, top, right, bottom in found.rects("box") + found.rects("pill"):
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height


def test_every_operation_is_named_where_nothing_folds() -> None:
    placement = training_step()
    said = "\n".join(drawn(placement, max_boxes=1000).titles("op"))
    for op in placement:
        assert re.search(rf"(^|\s){re.escape(op.name)}($|\s)", said), op.name


def test_box_tells_name_type_outputs_device_and_line_of_the_user() -> None:
    placement = toy()
    title = drawn(placement).title("y").split("\n")
    (op,) = (op for op in placement if op.name == "y")
    assert title[1:4] == [f"type: {op.type}", "outputs: f32[]", f"device: {WORKER}"]
    assert re.fullmatch(r"made at .*test_picture\.py:\d+ in toy", title[4])


def test_long_names_are_short_in_the_box_and_whole_in_its_title() -> None:
    name = "tower/with/many/scopes/and_a_name_that_does_not_stop_before_it_is_very_long"
    with tf.Graph().as_default():
        op = tf.constant(1.0, name=name).op
    found = drawn({op: WORKER})
    assert found.names() == [name]
    (shown,) = found.texts("name")
    assert len(shown) < 30
    assert "…" in shown


def test_odd_names_are_escaped() -> None:
    odd = jex.Primitive('<type> & "quotes"')
    graph = tf.Graph()
    program = "op = graph.add(odd, [], [aval], name='back\\\\slash')"
    scope = {"graph": graph, "odd": odd, "aval": jax.core.ShapedArray((2,), np.dtype("int32"))}
    exec(compile(program, "<input & 'output'>", "exec"), scope)
    (op,) = graph.get_operations()
    found = drawn({op: WORKER})
    assert found.title("back\\slash").split("\n")[1:] == [
        'type: <type> & "quotes"',
        "outputs: i32[2]",
        f"device: {WORKER}",
        "made at <input & 'output'>:1 in <module>",
    ]
    assert found.texts("detail") == ['<type> & "quotes" i32[2]']


def test_characters_that_xml_forbids_are_escaped() -> None:
    graph = tf.Graph()
    odd = jex.Primitive("nul\0 and \x1b and \ud800")
    odd.multiple_results = True
    op = graph.add(odd, [], [], name="op")
    assert "type: nul\\x00 and \\x1b and \\ud800" in drawn({op: WORKER}).title("op")
    picture({op: WORKER}).encode()


# Devices ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", GRAPHS)
def test_each_device_has_one_lane_and_one_legend_entry(graph: Callable[[], Placement]) -> None:
    placement = graph()
    found = drawn(placement)
    entries = [g.findtext(f"{SVG}text", "") for g in found.groups("legend swatch")]
    devices = sorted(set(placement.values()))
    counts = [list(placement.values()).count(device) for device in devices]
    assert found.texts("device") == [str(device) for device in devices]
    assert entries == [
        f"{device} ({count} op{'s' if count > 1 else ''})"
        for device, count in zip(devices, counts, strict=True)
    ]


def test_boxes_are_in_the_lane_and_the_colour_of_their_device() -> None:
    found = drawn(toy())
    lanes = []
    for lane in found.groups("lane"):
        rect = lane.find(f"{SVG}rect")
        assert rect is not None
        lanes.append((float(rect.get("x", "")), float(rect.get("width", ""))))
    for group in found.groups("op"):
        number = int(f"device: {WORKER}" in group.findtext(f"{SVG}title", ""))
        box = group.find(f"{SVG}rect")
        assert box is not None
        assert box.get("stroke") == device_colour(number)
        left, width = lanes[number]
        assert left < float(box.get("x", "")) < left + width


def test_eighteen_devices_have_colours_of_their_own_and_sends_another() -> None:
    assert len({device_colour(i) for i in range(18)} | {SEND}) == 19


# Arrows -------------------------------------------------------------------------------------------


def test_arrow_tells_the_values_on_it() -> None:
    assert "f32[]  mul:0" in drawn(toy()).title("mul → y", "arrow")


def test_arrows_that_cross_devices_are_marked_with_their_bytes() -> None:
    found = drawn(toy())
    crossing = found.title("y → step", "arrow data crossing").split("\n")
    assert crossing[1:] == ["f32[]  y:0  4 B", f"from {WORKER}", f"to {PS}", "1 send, 4 B a step"]
    assert found.names("arrow data crossing") == ["x → mul", "y → step"]
    assert found.texts("bytes") == ["4 B", "4 B"]
    assert "data that crosses devices: 2 sends, 8 B a step" in found.texts("entry")


def test_value_that_two_operations_of_a_device_need_is_sent_once() -> None:
    with tf.Graph().as_default():
        x = tf.constant(np.zeros((3, 4), np.float32), name="x")
        first, second = x * 2.0, x * 3.0
        found = drawn(placed(needed(first + second), "x"))
    assert found.texts("bytes") == ["48 B"]
    assert found.names("arrow data crossing") == ["x → mul", "x → mul_1"]
    assert "sent with another arrow" in found.title("x → mul_1", "arrow")
    assert "data that crosses devices: 1 send, 48 B a step" in found.texts("entry")


@pytest.mark.parametrize("graph", [toy, training_step, initializer, ordered_read])
def test_labels_are_off_boxes_and_each_other(graph: Callable[[], Placement]) -> None:
    found = drawn(graph())
    labels, boxes = found.rects("pill"), found.rects("box")
    assert not [pair for pair in combinations(labels, 2) if overlap(*pair)]
    assert not [(a, b) for a in labels for b in boxes if overlap(a, b)]


def test_control_arrows_are_dotted_and_carry_nothing() -> None:
    found = drawn(ordered_read())
    assert "runs after it, without data" in found.title("update → read_value", "arrow control")
    assert ".jflow .control .line" in found.text


# State and feeds ----------------------------------------------------------------------------------


def test_variable_is_a_cylinder_joined_with_what_changes_it() -> None:
    found = drawn(toy())
    assert found.names("op variable") == ["x"]
    assert found.names("op access") == ["step"]
    assert found.names("arrow state") == ["step → x"]
    assert "variable f32[] in container ''\nread by x/read" in found.title("x")


def test_operation_that_only_says_where_a_variable_lives_is_its_cylinder() -> None:
    with tf.Graph().as_default():
        v = tf.Variable(1.0, name="v")
        found = drawn({v.op: PS, v.assign(2.0).op: PS})
    assert found.names("op variable") == ["v"]
    assert found.names("arrow state") == ["Assign → v"]


def test_read_that_waits_is_a_box_of_its_own() -> None:
    placement = ordered_read()
    assert [op.name for op in placement if op.eqn.primitive is read_p] == ["v/read", "read_value"]
    found = drawn(placement)
    assert "read by v/read" in found.title("v")
    assert found.names("arrow state") == ["update → v", "v → read_value"]


def test_fed_value_is_a_pill_on_each_device_that_takes_it() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder("bfloat16", (4, 2), name="x")
        one, two = x * 2.0, x * 3.0
        found = drawn({one.op: PS, two.op: WORKER})
    assert found.names("op feed") == ["x:0", "x:0"]
    assert "fed with each step: bf16[4,2]" in found.titles("op feed")[0]
    assert not found.groups("arrow crossing")


# Folds --------------------------------------------------------------------------------------------


def test_large_scope_of_a_training_step_is_one_box() -> None:
    placement = training_step(4)
    found = drawn(placement, max_boxes=8)
    assert any(re.fullmatch(r"gradients \(\d+ ops\)", name) for name in found.texts("name"))
    assert len(found.groups("op")) <= 30


@pytest.mark.parametrize("n_layers", [4, 6])
def test_folded_operations_are_listed_in_the_title_up_to_forty(n_layers: int) -> None:
    placement = training_step(n_layers)
    found = drawn(placement, max_boxes=8)
    (title,) = (t for t in found.titles("op") if t.startswith("gradients ("))
    inside = [op for op in placement if op.name.startswith("gradients/")]
    for op in inside[:40]:
        assert f"{op.name}  {op.type}" in title.split("\n")
    assert (f"… and {len(inside) - 40} more" in title) == (len(inside) > 40)


def test_scope_on_two_devices_folds_into_two_boxes() -> None:
    with tf.Graph().as_default():
        y = tf.placeholder("float32", (), name="x")
        with tf.name_scope("tower"):
            for _ in range(30):
                y = y * 2.0
        ops = needed(y)
        found = drawn({op: PS if i % 2 else WORKER for i, op in enumerate(ops)}, max_boxes=5)
    assert found.names("op operation") == [f"tower (15 ops) on {device}" for device in (WORKER, PS)]
    assert sorted(found.texts("bytes")) == ["56 B", "60 B"]


def test_only_as_much_folds_as_is_needed() -> None:
    with tf.Graph().as_default():
        y = tf.placeholder("float32", (), name="x")
        for name, count in (("large", 8), ("small", 3)):
            with tf.name_scope(name):
                for _ in range(count):
                    y = y * 2.0
        found = drawn(placed(needed(y)), max_boxes=6)
    assert found.texts("name") == [
        "x:0",
        "large (8 ops)",
        "small/mul",
        "small/mul_1",
        "small/mul_2",
    ]


def test_variables_fold_apart_from_operations() -> None:
    found = drawn(training_step(), max_boxes=6)
    assert "layer0 (2 variables)" in found.texts("name")
    assert "392 KiB in all" in found.texts("detail")


def test_large_graph_without_scopes_folds_into_runs() -> None:
    placement = nameless()
    found = drawn(placement)
    assert len(found.groups("op")) <= 60
    folded = [int(match) for match in re.findall(r"\((\d+) ops\) on ", "\n".join(found.names()))]
    singles = [name for name in found.names("op operation") if " ops) on " not in name]
    assert sum(folded) + len(singles) == len(placement)

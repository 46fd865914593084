"""JSON, DOT and Mermaid, read back: DOT by its grammar, Mermaid by the form that it documents."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import jflow as tf
from jflow.base.text import printable
from jflow.base.values import TensorSpec
from jflow.inspect import (
    Box,
    BoxKind,
    Diagram,
    Flow,
    OpInfo,
    TensorInfo,
    to_dot,
    to_json,
    to_mermaid,
)
from jflow.view.captions import arrow_label, box_detail, box_label, box_title
from jflow.view.formats import dot_text, json_text, mermaid_text
from jflow.view.model import arrows_between
from jflow.view.picture import diagram
from tests.view.test_picture import PS, WORKER, nameless, toy, training_step

GRAPHS = [toy, training_step, nameless, dict]

HOSTILE = [
    'a "quoted" one',
    "back\\slash",
    "ends in \\",
    '\\"',
    "\\N \\G \\l",
    '"]; box9["',
    "f32[2,?] {a|b} (c)",
    "<b>&lt; &amp; &</b>",
    "two\nlines\r\nor\tthree",
    "#35; #quot; &#9829;",
    '%%{init: {"theme": "dark"}}%%',
    '"`markdown`"',
    'style a:b"c',
    'classDef x:y"z',
    "end",
    "graph TD; a-->b %% no comment",
    "日本語 ü 😀",
    "nul\0 and \x1b and \ud800",
    "  indented",
]
"""Graphviz 16 and Mermaid 11.17 were seen to show these as they are."""


def with_name(name: str) -> Diagram:
    """A diagram of all kinds of boxes and arrows that says a name wherever there is one."""
    value = TensorInfo(name, TensorSpec((2, None), "float32"))
    boxes = (
        Box(BoxKind.FEED, name, PS, fed=value),
        Box(BoxKind.OPERATION, "op", WORKER, (OpInfo("op", name, (value,), ()),), made_at=name),
        Box(BoxKind.ACCESS, "access", WORKER, (OpInfo("access", "assign", (), (name,)),)),
        Box(BoxKind.STATE, name, WORKER),
    )
    flows = [
        (0, 1, Flow.DATA, [value]),
        (1, 2, Flow.CONTROL, []),
        (2, 3, Flow.STATE, []),
    ]
    return Diagram(boxes, arrows_between(boxes, flows))


def hostile_names(test: Any) -> Any:
    """Any text, and each of `HOSTILE`."""
    for name in HOSTILE:
        test = example(name)(test)
    return given(st.text())(test)


# JSON ---------------------------------------------------------------------------------------------


def test_json_has_the_documented_form() -> None:
    """A change of this document that is more than a new key needs a new version."""
    with tf.Graph().as_default():
        x = tf.placeholder("float32", (None, 2), name="x")
        v = tf.Variable(1.0, name="v")
        y = tf.numpy.negative(x, name="y")
        update = v.assign_add(2.0, name="update")
        content = json.loads(to_json({y.op: WORKER, update.op: PS}))
    for box in content["boxes"]:
        assert ".py:" in box.pop("made_at")
    value = {"name": "x:0", "dtype": "float32", "shape": [None, 2]}
    blank = {"operations": [], "state": None, "fed": None, "members": [], "hidden": []}
    assert content["boxes"][0] == blank | {
        "kind": "state",
        "name": "v",
        "device": str(PS),
        "state": {
            "kind": "variable",
            "name": "v",
            "container": "",
            "dtype": "float32",
            "shape": [],
        },
    }
    feeds = [box for box in content["boxes"] if box["kind"] == "feed" and box["name"] == "x:0"]
    assert feeds == [blank | {"kind": "feed", "name": "x:0", "device": str(WORKER), "fed": value}]
    (computed,) = (box for box in content["boxes"] if box["name"] == "y")
    outputs = [{"name": "y:0", "dtype": "float32", "shape": [None, 2]}]
    assert computed == blank | {
        "kind": "operation",
        "name": "y",
        "device": str(WORKER),
        "operations": [
            {"name": "y", "type": "neg", "outputs": outputs, "uses": [], "reason": None}
        ],
    }
    names = [box["name"] for box in content["boxes"]]
    assert {
        "source": names.index("x:0"),
        "target": names.index("y"),
        "flow": "data",
        "crosses": False,
        "values": [value],
        "sent": [],
    } in content["arrows"]
    assert list(content) == ["format", "version", "devices", "boxes", "arrows", "prediction"]
    assert (content["format"], content["version"]) == ("jflow.diagram", 1)
    assert content["devices"] == [str(PS), str(WORKER)]


@pytest.mark.parametrize("graph", GRAPHS)
def test_json_has_every_box_and_arrow(graph: Any) -> None:
    placement = graph()
    found, content = diagram(placement), json.loads(to_json(placement))
    assert [box["name"] for box in content["boxes"]] == [box.name for box in found.boxes]
    assert len(content["arrows"]) == len(found.arrows)
    assert to_json(placement) == to_json(placement)


def test_json_of_a_fold_has_its_members() -> None:
    content = json.loads(to_json(training_step(5), 10))
    (fold,) = (box for box in content["boxes"] if box["name"] == "gradients")
    hidden = [each for member in fold["members"] for each in member["hidden"]]
    assert hidden
    assert len(fold["members"]) + len(hidden) == len(fold["operations"]) > 1
    assert fold["members"][0]["kind"] == "operation"


@hostile_names
def test_any_name_survives_json(name: str) -> None:
    content = json.loads(json_text(with_name(name)))
    assert content["boxes"][0]["name"] == name
    assert content["arrows"][0]["values"][0]["name"] == name
    assert content["arrows"][0]["sent"] == [name]


# DOT ----------------------------------------------------------------------------------------------

# https://graphviz.org/doc/info/lang.html, without ports, HTML strings and comments.
_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|-?[0-9.]+|[A-Za-z_]\w*|->|[{}\[\];,=])', re.DOTALL)


class Dot:
    """Reads a graph: attributes of nodes, edges and the labels of clusters."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        rest = text.rstrip()
        while rest:
            match = _TOKEN.match(rest)
            assert match, f"no token of DOT: {rest[:40]!r}"
            self._tokens.append(match[1])
            rest = rest[match.end() :]
        self._tokens.reverse()
        self.nodes: dict[str, dict[str, str]] = {}
        self.cluster_of: dict[str, str] = {}
        self.edges: list[tuple[str, str, dict[str, str]]] = []
        self._expect("digraph")
        self._statements("")
        assert not self._tokens

    def _expect(self, *wanted: str) -> None:
        for token in wanted:
            assert self._tokens.pop() == token

    def _statements(self, cluster: str) -> None:
        self._expect("{")
        label = cluster
        while self._tokens[-1] != "}":
            first = self._tokens.pop()
            if first == "subgraph":
                assert self._tokens.pop().startswith("cluster_")
                self._statements("?")
                continue
            if self._tokens[-1] == "=":
                self._expect("=")
                assert first == "label"
                label = self._value()
            elif self._tokens[-1] == "->":
                self._expect("->")
                self.edges.append((first, self._tokens.pop(), self._attributes()))
            else:
                attributes = self._attributes()
                if first != "node":
                    assert first not in self.nodes
                    self.nodes[first] = attributes
                    self.cluster_of[first] = label
            self._expect(";")
        self._expect("}")

    def _attributes(self) -> dict[str, str]:
        found = {}
        if self._tokens[-1] == "[":
            self._expect("[")
            while True:
                name = self._tokens.pop()
                self._expect("=")
                found[name] = self._value()
                if self._tokens.pop() == "]":
                    break
        return found

    def _value(self) -> str:
        """As Graphviz shows it: a lexer that knows only \\", then escapes, then entities."""
        token = self._tokens.pop()
        if not token.startswith('"'):
            return token
        escapes = {"n": "\n", "\\": "\\", '"': '"'}
        shown = re.sub(r"\\(.)", lambda match: escapes[match[1]], token[1:-1], flags=re.DOTALL)
        assert not re.search(r"&(?!amp;)", shown)
        return shown.replace("&amp;", "&")


@pytest.mark.parametrize("graph", GRAPHS)
def test_dot_has_every_box_and_arrow(graph: Any) -> None:
    placement = graph()
    found, read = diagram(placement, 40), Dot(to_dot(placement))
    assert len(read.nodes) == len(found.boxes)
    for number, box in enumerate(found.boxes):
        node = read.nodes[f"box{number}"]
        assert node["label"] == f"{box_label(box)}\n{box_detail(box)}".rstrip()
        assert node["tooltip"] == box_title(box)
        assert read.cluster_of[f"box{number}"] == str(box.device)
    assert [(a, b, look.get("label", "")) for a, b, look in read.edges] == [
        (f"box{arrow.source}", f"box{arrow.target}", arrow_label(arrow)) for arrow in found.arrows
    ]


@hostile_names
def test_dot_shows_any_name_as_it_is(name: str) -> None:
    found = with_name(name)
    read = Dot(dot_text(found))
    assert len(read.nodes) == 4
    assert len(read.edges) == 3
    for number, box in enumerate(found.boxes):
        shown = read.nodes[f"box{number}"]["tooltip"]
        assert shown == printable(box_title(box), allowed="\n")


# Mermaid ------------------------------------------------------------------------------------------

# https://mermaid.js.org/syntax/flowchart.html: strings in quotes, character codes "#35;".
_STRING = r'"([^"#`&<>%{}|]|#\d+;|<br/>)*"'
_MERMAID_LINES = [
    r"flowchart TB",
    rf"  subgraph device\d+\[{_STRING}\]",
    rf"    box\d+(\[{_STRING}\]|\[\[{_STRING}\]\]|\[\({_STRING}\)\]|\(\[{_STRING}\]\))",
    r"  end",
    rf"  box\d+ (-->|-\.->|==>)(\|{_STRING}\|)? box\d+",
]


def read_mermaid(text: str) -> list[str]:
    """The strings of a flowchart, as Mermaid shows them; the lines have to be well formed."""
    lines = text.removesuffix("\n").split("\n")
    for line in lines:
        assert any(re.fullmatch(form, line) for form in _MERMAID_LINES), line
        # Mermaid takes a semicolon from such lines, before it looks at anything else.
        assert not re.search(r"(style|classDef).*:\S*#.*;", line)
    strings = re.findall(r'"([^"]*)"', text)
    return [
        re.sub(r"#(\d+);", lambda match: chr(int(match[1])), string.replace("<br/>", "\n"))
        for string in strings
    ]


@pytest.mark.parametrize("graph", GRAPHS)
def test_mermaid_has_every_box_and_arrow(graph: Any) -> None:
    placement = graph()
    found, text = diagram(placement, 40), to_mermaid(placement)
    wanted = []
    for device in found.devices:
        wanted.append(str(device))
        for box in found.boxes:
            if box.device == device:
                wanted.append(f"{box_label(box)}\n{box_detail(box)}".rstrip())
    wanted += [arrow_label(arrow) for arrow in found.arrows if arrow.sent]
    assert read_mermaid(text) == wanted
    ends = re.findall(r"^  box(\d+) \S+.* box(\d+)$", text, re.MULTILINE)
    assert [(int(a), int(b)) for a, b in ends] == [(a.source, a.target) for a in found.arrows]


@hostile_names
def test_mermaid_shows_any_name_as_it_is(name: str) -> None:
    found = with_name(name)
    shown = read_mermaid(mermaid_text(found))
    boxes = [found.boxes[number] for number in (0, 1, 2, 3)]
    labels = ["\n".join(filter(None, (box_label(box), box_detail(box)))) for box in boxes]
    devices = [str(device) for device in found.devices]
    sends = [arrow_label(arrow) for arrow in found.arrows if arrow.sent]
    assert sorted(shown) == sorted(
        [*devices, *(printable(label, allowed="\n") for label in labels), *sends]
    )

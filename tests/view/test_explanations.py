"""Pictures and data of explained steps: the reason of each operation, and the predicted time."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest

import jflow as tf
from jflow.base.text import seconds_text
from jflow.compiler.placement import Explanation
from jflow.inspect import diagram, picture, save_picture, to_dot, to_json, to_mermaid

SVG = "{http://www.w3.org/2000/svg}"


def spread(graph, devices, costs, constraints):
    """Each colocation class on a device of its own, as far as it may."""
    return {
        operation: devices[(options := constraints.allowed.get(n, (0, 1, 2)))[n % len(options)]]
        for operation, n in zip(graph.operations, constraints.classes, strict=True)
    }


@pytest.fixture(scope="module")
def explanation() -> Explanation:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, (3,), name="x")
        v = tf.Variable(tf.numpy.ones(3), name="v")
        with tf.device("/device:CPU:1"):
            pinned = tf.numpy.sin(x, name="pinned")
        with tf.name_scope("tail"):
            y = pinned * v
            for _ in range(4):
                y = tf.numpy.cos(y)
        done = v.assign(y, name="done")
        with tf.Session(graph=graph, config=tf.ConfigProto(placement=spread)) as sess:
            return sess.explain(done, [x])


def titles(svg: str) -> dict[str, list[str]]:
    """The lines of the tooltip of each box, by its name."""
    groups = [g for g in ET.fromstring(svg).iter(f"{SVG}g") if "op" in g.get("class", "").split()]
    lines = [group.findtext(f"{SVG}title", "").splitlines() for group in groups]
    return {first.partition(" (")[0]: rest for first, *rest in lines}


def test_a_tooltip_has_device_reason_and_best_alternative(explanation) -> None:
    found = titles(picture(explanation, None))
    assert "why: asks for '/device:CPU:1'" in found["pinned"]
    assert not any("alternative" in line for line in found["pinned"])
    reason = explanation.reason("tail/cos")
    other, seconds = reason.best_alternative
    assert f"device: {reason.device}" in found["tail/cos"]
    assert "why: chosen by spread" in found["tail/cos"]
    assert f"predicted to take {seconds_text(reason.seconds)}" in found["tail/cos"]
    line = f"best alternative: {other}, where the step takes {seconds_text(seconds)}"
    assert line in found["tail/cos"]
    assert "why: uses 'v', which lives here" in found["done"]
    assert not any(line.startswith("why") for line in found["x:0"]), "a fed value is not placed"


def test_the_legend_has_the_predicted_time_and_the_lower_bound(explanation, tmp_path) -> None:
    save_picture(explanation, tmp_path / "step.svg")
    text = (tmp_path / "step.svg").read_text()
    assert explanation.summary.startswith("placed by spread: predicted step time ")
    assert f">{explanation.summary}</text>" in text
    assert "predicted" not in picture(explanation.placement)


def test_a_fold_has_no_reason_but_what_stands_alone_beside_it_has(explanation) -> None:
    found = titles(picture(explanation, 6))
    folds = [name for name in found if name not in titles(picture(explanation, None))]
    assert folds
    assert not any(line.startswith("why") for name in folds for line in found[name])
    assert "why: asks for '/device:CPU:1'" in found["pinned"]


def test_json_has_every_reason_with_its_alternatives(explanation) -> None:
    content = json.loads(to_json(explanation))
    assert content["prediction"] == {
        "strategy": "spread",
        "seconds": explanation.predicted_seconds,
        "lower_bound": explanation.lower_bound,
    }
    operations = {op["name"]: op for box in content["boxes"] for op in box["operations"]}
    assert {*operations} == {op.name for op in explanation.placement}
    for name, operation in operations.items():
        reason = explanation.reason(name)
        assert operation["reason"] == {
            "why": reason.why,
            "seconds": reason.seconds,
            "alternatives": dict(reason.alternatives),
        }
    plain = json.loads(to_json(explanation.placement))
    assert plain["prediction"] is None
    assert all(op["reason"] is None for box in plain["boxes"] for op in box["operations"])


def test_other_forms_take_explanations_too(explanation) -> None:
    assert f'  label="{explanation.summary}";' in to_dot(explanation).splitlines()
    assert to_mermaid(explanation) == to_mermaid(explanation.placement)
    assert diagram(explanation).arrows == diagram(explanation.placement).arrows

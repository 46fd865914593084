"""What becomes one box, what is hidden in another, and what opens first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jflow as tf
from jflow.base.cluster import Device
from jflow.compiler.graph import Operation
from jflow.inspect import Box, BoxKind, Diagram, Flow, diagram
from jflow.view.build import sketched
from jflow.view.contract import contracted
from jflow.view.fold import folded
from jflow.view.model import Sketch
from tests.view.test_picture import PS, WORKER, needed, placed, training_step


def names(found: Diagram | Sketch, kind: BoxKind = BoxKind.OPERATION) -> list[str]:
    return [box.name for box in found.boxes if box.kind is kind]


def small(placement: Mapping[Operation, Device]) -> Sketch:
    return contracted(sketched(placement))


def hidden_in(found: Sketch, name: str) -> list[str]:
    (box,) = (box for box in found.boxes if box.name == name)
    return [each.name for each in box.hidden]


# What is hidden -----------------------------------------------------------------------------------


def test_conversion_is_hidden_in_what_it_converts() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder("float32", (3,), name="x")
        y = tf.numpy.reshape(tf.numpy.sin(x, name="sine"), (3, 1), name="column")
        found = small(placed(needed(tf.numpy.exp(y, name="result"))))
    assert names(found) == ["sine", "result"]
    assert hidden_in(found, "sine") == ["column"]
    assert [link[:3] for link in found.links] == [(0, 1, Flow.DATA), (1, 2, Flow.DATA)]


def test_conversion_of_a_fed_value_or_variable_is_hidden_in_its_only_user() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder("float32", (3,), name="x")
        y = tf.numpy.reshape(x, (3, 1), name="column")
        found = small(placed(needed(tf.numpy.exp(y, name="result"))))
    assert hidden_in(found, "result") == ["column"]


def test_constant_of_several_users_stays() -> None:
    with tf.Graph().as_default():
        two = tf.constant(np.float32(2), name="two")
        y = tf.numpy.sin(two, name="sine") + tf.numpy.exp(two, name="power")
        found = small(placed(needed(y)))
    assert "two" in names(found)


def test_conversion_on_another_device_stays() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder("float32", (3,), name="x")
        y = tf.numpy.reshape(tf.numpy.sin(x, name="sine"), (3, 1), name="column")
        found = small(placed(needed(tf.numpy.exp(y, name="result")), "column"))
    assert names(found) == ["sine", "column", "result"]


def test_group_that_ends_a_step_is_hidden_with_its_arrows() -> None:
    with tf.Graph().as_default():
        v, w = (tf.Variable(np.float32(1), name=name) for name in "vw")
        train = tf.group(v.assign_add(1.0, name="first"), w.assign_add(1.0, name="second"))
        found = small(placed(needed(train)))
    assert not any(link[2] is Flow.CONTROL for link in found.links)
    assert sorted(op.name for box in found.boxes for op in box.all_ops) == sorted(
        op.name for op in needed(train)
    )


def test_group_on_a_device_of_its_own_stays() -> None:
    with tf.Graph().as_default():
        v = tf.Variable(np.float32(1), name="v")
        train = tf.group(v.assign_add(1.0, name="first"), name="train")
        found = small(placed(needed(train), "v", "first"))
    assert "train" in names(found)
    assert {box.device for box in found.boxes} == {PS, WORKER}


def test_function_of_the_name_of_a_conversion_stays() -> None:
    @jax.jit
    def reshape(x: jax.Array) -> jax.Array:
        return jnp.sin(x) @ x

    @jax.jit
    def group(x: jax.Array, y: jax.Array) -> jax.Array:
        return x + y

    with tf.Graph().as_default() as graph:
        x = tf.placeholder("float32", (3, 3), name="x")
        one = graph.apply(reshape, (tf.numpy.sin(x, name="sine"),))
        both = graph.apply(group, (one, one))
        found = small(placed(needed(both)))
    assert [box.ops[0].type for box in found.boxes if box.ops] == ["sin", "reshape", "group"]


@pytest.mark.parametrize("limit", [1, 5, 12])
def test_nothing_is_lost(limit: int) -> None:
    placement = training_step(4)
    found = folded(small(placement), limit)
    parts = [part for box in found.boxes for part in box.parts]
    assert sorted(op.name for part in parts for op in part.ops) == sorted(
        op.name for op in placement
    )


# Optimizers ---------------------------------------------------------------------------------------


def adam_in_a_graph() -> Mapping[Operation, Device]:
    with tf.Graph().as_default():
        x = tf.placeholder("float32", (4, 3), name="x")
        with tf.name_scope("layer"):
            w = tf.Variable(np.ones((3, 2), np.float32), name="w")
            b = tf.Variable(np.zeros(2, np.float32), name="b")
            loss = tf.numpy.mean((x @ w + b) ** 2)
        train = tf.train.AdamOptimizer(0.1).minimize(loss)
        with tf.Session() as session:
            return session.placement(train, [x])


def adam_in_a_function() -> Mapping[Operation, Device]:
    with tf.LocalCluster(ps=1) as cluster, tf.connect(cluster.target()):
        w = tf.Variable(np.ones((3, 2), np.float32), name="layer/w")
        b = tf.Variable(np.zeros(2, np.float32), name="layer/b")
        optimizer = tf.train.Optimizer(optax.adam(0.1), name="Adam")
        optimizer.build([w, b])

        @tf.function
        def step(x: jax.Array) -> Any:
            loss = lambda params, x: jnp.mean((x @ params[0] + params[1]) ** 2)  # noqa: E731
            value, grads = tf.value_and_grad(loss)([w, b], x)
            optimizer.apply_gradients(zip(grads, [w, b], strict=True))
            return value

        return dict(step.placement(np.ones((4, 3), np.float32)))


ADAMS = [adam_in_a_graph, adam_in_a_function]


@pytest.mark.parametrize("adam", ADAMS)
def test_update_of_a_variable_is_one_box(adam: Callable[[], Mapping[Operation, Device]]) -> None:
    found = diagram(adam(), 20)
    updates = [box for box in found.boxes if "update_layer/" in box.name]
    assert [box.name for box in updates] == ["Adam/update_layer/w", "Adam/update_layer/b"]
    assert all("assign" in [op.type for op in box.ops] for box in updates)


@pytest.mark.parametrize("adam", ADAMS)
def test_slots_are_hidden_in_their_variable(
    adam: Callable[[], Mapping[Operation, Device]],
) -> None:
    found = small(adam())
    assert names(found, BoxKind.STATE) == ["layer/w", "layer/b"]
    assert len(hidden_in(found, "layer/b")) == 2  # the averages of gradients and their squares


# What opens ---------------------------------------------------------------------------------------


def scoped(*scopes: str) -> Mapping[Operation, Device]:
    """A chain of operations in scopes."""
    with tf.Graph().as_default():
        y = tf.placeholder("float32", (), name="x")
        for scope in scopes:
            with tf.name_scope(f"{scope}/"):
                y = tf.numpy.sin(y, name="sine")
        return placed(needed(y))


def test_outer_scopes_open_before_inner_ones() -> None:
    placement = scoped(*["a/b"] * 3, *["a/c"] * 3, *["d"] * 6)
    assert names(diagram(placement, 3)) == ["a", "d"]
    assert names(diagram(placement, 4)) == ["a/b", "a/c", "d"]
    assert len(names(diagram(placement, 8))) == 7  # one of the two scopes, and the others closed


def test_scope_that_others_interrupt_is_divided_where_that_would_be_a_cycle() -> None:
    placement = scoped("linear", "linear", "relu", "linear", "linear", "relu")
    found = diagram(placement, 5)
    assert names(found) == ["linear", "relu/sine", "linear", "relu/sine_1"]
    assert all(arrow.source < arrow.target for arrow in found.arrows)


def test_operations_between_scopes_are_a_run() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder("float32", (), name="x")
        y = tf.numpy.exp(tf.numpy.sin(x, name="first"), name="second")
        with tf.name_scope("layer"):
            y = tf.numpy.sin(tf.numpy.sin(y))
        y = tf.numpy.exp(tf.numpy.sin(y, name="third"), name="fourth")
        found = diagram(placed(needed(y)), 4)
    assert names(found) == ["first … second", "layer", "third … fourth"]


@given(
    st.lists(st.tuples(st.sampled_from(["", "a/", "a/b/", "c/"]), st.booleans()), max_size=12),
    st.integers(1, 12),
)
def test_folds_have_a_device_and_a_kind(ops: list[tuple[str, bool]], limit: int) -> None:
    boxes = [
        Box(BoxKind.OPERATION, f"{scope}{i}", PS if on_ps else WORKER)
        for i, (scope, on_ps) in enumerate(ops)
    ]
    links = [(i, i + 1, Flow.DATA, ()) for i in range(len(boxes) - 1)]
    found = folded(Sketch(boxes, links), limit)
    for box in found.boxes:
        assert {part.device for part in box.parts} == {box.device}
    assert sorted(part.name for box in found.boxes for part in box.parts) == sorted(
        box.name for box in boxes
    )


def test_graph_without_scopes_has_about_as_many_boxes_as_fit() -> None:
    for n_ops in (100, 500, 3000):
        with tf.Graph().as_default():
            y = tf.placeholder("float32", (), name="x")
            for _ in range(n_ops):
                y = tf.numpy.sin(y)
            found = diagram(placed(needed(y)), 40)
        assert 20 <= len(found.boxes) <= 41

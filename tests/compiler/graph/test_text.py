"""The text form of graphs: an operation a line, and nothing that differs from run to run."""

import re

import jax
import numpy as np
import pytest

import jflow as tf
from jflow.base.values import unknown_dim


def _line(op):
    """What the graph's text says of an operation."""
    name = op.name if isinstance(op, tf.Operation) else op.op.name
    lines = str(tf.get_default_graph()).splitlines()
    (found,) = [line.strip() for line in lines if line.strip().startswith(f"{name} = ")]
    return found


def test_a_graph_counts_its_operations_first():
    assert str(tf.Graph()) == "graph of 0 operations"
    tf.constant(1.0, name="one")
    assert (
        str(tf.get_default_graph()) == "graph of 1 operations\n  one = constant(1.0) -> float32 ()"
    )


def test_sizes_that_are_not_known_are_none():
    assert _line(tf.placeholder("float32", (None, 3), name="x")).endswith("-> float32 (None, 3)")
    assert (
        _line(tf.placeholder("string", None, name="s")) == "s = placeholder() -> string any shape"
    )


def test_operands_are_tensors_and_numbers():
    x = tf.placeholder("float32", (3,), name="x")
    assert _line(x * 2.0) == "mul = mul(x:0, 2.0) -> float32 (3,)"


def test_several_results_have_a_type_each():
    values, _ = tf.lax.top_k(tf.placeholder("float32", (3,), name="x"), 2)
    assert _line(values).endswith("(x:0) -> float32 (2,), int32 (2,)")


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.5, "2.5"), ([1, 2], "[1, 2]"), ([1] * 5, "…"), (["a"], "[b'a']"), (["a" * 99], "[b'aaa")],
)
def test_constants_are_abridged(value, text):
    line = _line(tf.constant(value, name="c"))
    assert line.startswith(f"c = constant({text}")
    assert len(line) < 80


def test_bodies_are_abridged():
    x = tf.constant(np.ones(3, np.float32), name="x")
    assert _line(tf.nn.softmax(x, name="soft")) == "soft = softmax(x:0, {…}) -> float32 (3,)"


def test_state_is_named():
    with tf.container("box"):
        v = tf.Variable(1.0, name="v")
    assert _line(v.op) == "v = variable()"
    assert "read(variable 'v' (container 'box'))" in _line(v.read_value())
    q = tf.FIFOQueue(3, "float32", (), name="q")
    wanted = "many = queue.dequeue_many(queue 'q' (container '')"
    assert _line(q.dequeue_many(2, name="many")).startswith(wanted)


def test_requests_come_last():
    with tf.device("/job:ps"):
        a = tf.constant(1.0, name="a")
    with tf.colocate_with(a.op), tf.control_dependencies([a, tf.no_op(name="b")]):
        c = tf.constant(2.0, name="c")
    assert _line(c) == "c = constant(2.0) -> float32 ()   [device /job:ps; with a; after a, b]"


def test_keys_have_their_dtype():
    assert "-> key<fry> ()" in _line(tf.constant(jax.random.key(0), name="key"))


def test_the_same_program_has_the_same_text_later():
    def build():
        with tf.Graph().as_default() as graph:
            x = tf.placeholder("float32", (None,), name="x")
            v = tf.Variable(np.ones(3, np.float32), name="v")
            tf.gradients(tf.numpy.sum(v * tf.numpy.mean(x)), [v])
        return str(graph)

    before = build()
    for _ in range(11):
        unknown_dim()
    assert build() == before
    assert not re.search(r"0x[0-9a-f]+|\.py\b", before)


def test_the_short_form_stays_short():
    tf.constant(1.0)
    assert repr(tf.get_default_graph()) == "<jflow.Graph of 1 operations>"

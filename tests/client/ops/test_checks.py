"""Assertions that fail, and values that a task prints."""

import subprocess
import sys

import numpy as np
import pytest

import jflow as tf
from jflow.errors import InvalidArgumentError
from tests.clusters import Backend


@pytest.fixture
def x():
    return tf.placeholder(tf.float32, [None], name="x")


def test_a_condition_that_does_not_hold_fails_the_step(backend: Backend, x):
    limit = tf.constant(2.0, name="limit")
    check = tf.assert_less(x, limit, message="too large")
    with tf.control_dependencies([check]):
        y = tf.identity(x)
    with backend.session() as session:
        assert session.run(y, {x: [1.0]}).tolist() == [1.0]
        expected = (
            r"assertion failed: \[too large\] \[Condition x < y did not hold element-wise:\] "
            r"\[x \(x:0\) = \] \[1.0 5.0 6.0\.\.\.\] \[y \(limit:0\) = \] \[2.0\]"
        )
        with pytest.raises(InvalidArgumentError, match=expected) as caught:
            session.run(y, {x: [1.0, 5.0, 6.0, 7.0]})
    assert caught.value.op == "assert_less/Assert/Assert"


def test_data_says_what_a_message_shows(x):
    words = tf.constant(["a", "b"])
    check = tf.Assert(tf.reduce_all(tf.greater(x, 0.0)), ["found", x, words], summarize=1)
    with tf.Session() as session:
        session.run(check, {x: [1.0]})
        with pytest.raises(InvalidArgumentError, match=r"\[found\] \[-1.0\.\.\.\] \[a\.\.\.\] "):
            session.run(check, {x: [-1.0, 2.0]})


@pytest.mark.parametrize(
    ("make", "bad"),
    [
        (lambda x: tf.assert_equal(x, 1.0), 2.0),
        (lambda x: tf.assert_none_equal(x, 2.0), 2.0),
        (lambda x: tf.assert_greater(x, 2.0), 2.0),
        (lambda x: tf.assert_greater_equal(x, 2.0), 1.0),
        (lambda x: tf.assert_less_equal(x, 1.0), 2.0),
        (tf.assert_positive, 0.0),
        (tf.assert_negative, 0.0),
        (tf.assert_non_negative, -1.0),
        (tf.assert_non_positive, 1.0),
        (lambda x: tf.assert_near(x, 1.0), 1.1),
        (lambda x: tf.assert_near(x, 1.0, rtol=0.0, atol=0.5), 1.6),
        (tf.assert_positive, np.nan),
    ],
)
def test_each_assertion_can_fail(x, make, bad):
    check = make(x)
    with tf.Session() as session, pytest.raises(InvalidArgumentError, match="assertion failed"):
        session.run(check, {x: [bad]})


def test_ranks_and_dtypes_are_checked_when_the_graph_is_built(x):
    with pytest.raises(ValueError, match=r"^wrong: .*'x:0'.* must have rank 2, got rank 1"):
        tf.assert_rank(x, 2, message="wrong:")
    with pytest.raises(ValueError, match="rank at least 2"):
        tf.assert_rank_at_least(x, 2)
    with pytest.raises(ValueError, match=r"a rank of \(0, 2\)"):
        tf.assert_rank_in(x, (0, 2))
    with pytest.raises(ValueError, match="rank 0"):
        tf.assert_scalar(x)
    with pytest.raises(ValueError, match="unknown until it is fed"):
        tf.assert_scalar(tf.placeholder(tf.float32))
    with pytest.raises(ValueError, match="expected rank to be known"):
        tf.assert_rank(tf.placeholder(tf.float32), tf.placeholder(tf.int32, []))
    with pytest.raises(TypeError, match="integers"):
        tf.assert_integer(x)
    with pytest.raises(TypeError, match="int32"):
        tf.assert_type(x, tf.int32)


@pytest.mark.parametrize("dtype", [tf.float32, tf.string])
def test_a_rank_that_the_graph_does_not_know_is_checked_in_the_step(dtype):
    x = tf.placeholder(dtype)
    checks = {
        "1": tf.assert_rank(x, 1),
        "12": tf.assert_rank_at_least(x, 1),
        "02": tf.assert_rank_in(x, (0, 2)),
    }
    shown = tf.assert_rank(x, 1, ["data", x], 1, "message")
    assert checks["12"].name == "assert_rank_at_least/Assert/Assert"
    values = [
        np.full((2,) * rank, "3").astype(object if dtype == tf.string else float)
        for rank in range(3)
    ]
    with tf.Session() as session:
        for ranks, check in checks.items():
            for rank, value in enumerate(values):
                if str(rank) in ranks:
                    session.run(check, {x: value})
                    continue
                sizes = f"must have .* Received shape:\\] \\[{' '.join('2' * rank)}\\]"
                with pytest.raises(tf.errors.InvalidArgumentError, match=sizes):
                    session.run(check, {x: value})
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[message\] \[data\] \[3"):
            session.run(shown, {x: values[2]})


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda x: tf.assert_rank(x, 1), "assert_rank/static_checks_determined_all_ok"),
        (lambda x: tf.assert_rank(x, 1, [x], 3, "message", "given"), "given/static_checks_"),
        (lambda x: tf.assert_rank_at_least(x, 1, data=[x], summarize=1), "assert_rank_at_least/"),
        (lambda x: tf.assert_rank_in(x, [1], [x], 3, "message", None), "assert_rank_in/"),
        (lambda x: tf.assert_type(x, tf.float32), "assert_type/statically_determined_correct_type"),
        (lambda x: tf.assert_type(x, tf.float32, "message", "given"), "given/statically_"),
        (
            lambda _: tf.assert_integer(tf.constant(1)),
            "assert_integer/statically_determined_was_integer",
        ),
        (lambda x: tf.Assert(tf.reduce_all(x > 0), [x], name=None), "Assert"),
        (lambda x: tf.assert_equal(x, x, name=None), "assert_equal/Assert/Assert"),
        (lambda x: tf.assert_positive(x, name=None), "assert_positive/Assert/Assert"),
        (lambda x: tf.assert_near(x, x, name=None), "assert_near/Assert/Assert"),
        (lambda x: tf.Print(x, [x], name=None).op, "Print"),
    ],
)
def test_what_depends_on_a_check_waits_for_an_operation(x, make, name):
    check = make(x)
    assert check.name.startswith(name)
    with tf.control_dependencies([check]):
        y = tf.identity(x)
    with tf.Session() as session:
        assert session.run(y, {x: [1.0]}).tolist() == [1.0]
    assert tf.assert_scalar(1.0, None, "message").shape == ()


def test_equal_graphs_that_print_have_equal_operations_unless_they_count():
    def printed(first_n):
        with tf.Graph().as_default() as graph:
            x = tf.constant(1.0)
            tf.Print(x, [x], "x =", first_n)
            tf.Print(x, [x], "x =", first_n)
            return [op.eqn.params["attributes"] for op in graph.get_operations() if not op.outputs]

    assert printed(None) == printed(None)
    assert len({*printed(2), *printed(2)}) == 4


def test_values_are_printed_where_they_are_computed_a_number_of_times():
    program = """
import jflow as tf
x = tf.placeholder(tf.float32, [None])
y = tf.Print(2.0 * x, [x, tf.constant("word")], "x =", first_n=2, summarize=2)
slope = tf.gradients(y, x)[0]
with tf.Session() as session:
    for n in (1, 3, 2):
        session.run(y, {x: [1.0] * n})
    print(session.run(slope, {x: [1.0]}))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("[x =]")]
    assert lines == ["[x =] [1.0] [word]", "[x =] [1.0 1.0...] [word]"]
    assert done.stdout == "[2.]\n"

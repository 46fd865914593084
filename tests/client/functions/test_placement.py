"""Strategies for functions: the connection's, the function's own, and why they chose so."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.errors import InvalidArgumentError
from tests.clusters import Backend, in_process

WORKERS = [f"/job:worker/task:{i}/device:CPU:0" for i in range(3)]


def last(graph, devices, costs, constraints):
    """Everything on the last device that it may go to."""
    allowed = constraints.allowed
    every = range(len(devices))
    return {
        operation: devices[allowed.get(number, every)[-1]]
        for operation, number in zip(graph.operations, constraints.classes, strict=True)
    }


def first(graph, devices, costs, constraints):
    """Everything on the first device; refused if anything has to be elsewhere."""
    return dict.fromkeys(graph.operations, devices[0])


@pytest.fixture(scope="module")
def cluster() -> Iterator[Backend]:
    with in_process({"worker": 3}) as backend:
        yield backend


def tasks(placement) -> set[str]:
    return {str(device.task) for device in placement.values()}


def double(x):
    return jnp.sin(x) * 2.0


X = np.linspace(0, 1, 5, dtype=np.float32)


@pytest.mark.parametrize("placement", [last, "tests.client.functions.test_placement:last"])
def test_a_connection_has_a_strategy_for_its_functions(cluster, placement) -> None:
    with tf.connect(cluster.target, placement=placement):
        f = tf.function(double)
        assert tasks(f.placement(X)) == {"/job:worker/task:2"}
        np.testing.assert_array_equal(f(X), jax.jit(double)(X))


def test_a_connections_strategy_wins_over_its_options(cluster) -> None:
    config = tf.ConfigProto(placement="rules")
    with tf.connect(cluster.target, config, placement=last):
        assert tasks(tf.function(double).placement(X)) == {"/job:worker/task:2"}
    with tf.connect(cluster.target, config, placement=last) as connection:
        assert "last" in connection._repr_html_()
        with connection.another():
            assert tasks(tf.function(double).placement(X)) == {"/job:worker/task:2"}
    with tf.connect(cluster.target, tf.ConfigProto(placement=last)):
        assert tasks(tf.function(double).placement(X)) == {"/job:worker/task:2"}


def test_a_functions_own_strategy_wins_over_the_connections(cluster) -> None:
    f, g = tf.function(double), tf.function(placement=last)(double)
    with tf.connect(cluster.target, placement=first):
        assert tasks(f.placement(X)) == {"/job:worker/task:0"}
        assert tasks(g.placement(X)) == {"/job:worker/task:2"}
        np.testing.assert_array_equal(f(X), g(X))


def test_a_function_inside_another_goes_where_the_outer_one_says(cluster) -> None:
    inner = tf.function(placement=last)(double)
    outer = tf.function(placement=first)(lambda x: inner(x) + 1.0)
    with tf.connect(cluster.target):
        assert tasks(outer.placement(X)) == {"/job:worker/task:0"}


@pytest.mark.parametrize("placement", ["auto", "round_robin", "etf_c", "min_cut_runs"])
def test_a_function_gives_the_same_under_every_strategy(cluster, placement) -> None:
    with tf.connect(cluster.target, placement=placement) as connection:
        v = tf.Variable(X, name=connection.unnamed())

        @tf.function
        def step(x):
            with tf.device(WORKERS[1]):
                y = jnp.cos(v.value() * x)
            v.assign_add(y)
            return y.sum()

        expected = np.cos(X * 2.0)
        np.testing.assert_allclose(step(np.float32(2.0)), expected.sum(), rtol=1e-6)
        np.testing.assert_allclose(v.numpy(), X + expected, rtol=1e-6)


def test_eager_accesses_go_by_the_rules_because_nothing_is_to_choose(cluster) -> None:
    def never(graph, devices, costs, constraints):
        raise AssertionError("there is nothing to choose")

    with tf.connect(cluster.target, placement=never) as connection:
        v = tf.Variable(X, name=connection.unnamed())
        v.assign_add(X)
        np.testing.assert_array_equal(v.numpy(), 2 * X)
        computed = tf.Variable(lambda: jnp.cos(X) * 2.0, name=connection.unnamed())
        np.testing.assert_allclose(computed.numpy(), np.cos(X) * 2.0, rtol=1e-6)
        queue = tf.FIFOQueue(2, tf.float32, shared_name=connection.unnamed())
        queue.put(1.0)
        assert queue.get() == 1.0


def test_an_explanation_of_a_call_has_reasons_and_times(cluster) -> None:
    @tf.function(placement=last)
    def f(x):
        with tf.device(WORKERS[1]):
            y = jnp.sin(x)
        return y * 2.0

    with tf.connect(cluster.target):
        explanation = f.explain(X)
        assert dict(explanation.placement) == f.placement(X)
    why = {reason.operation.rpartition("/")[2]: reason for reason in explanation.reasons}
    assert why["sin"].why == f"asks for {WORKERS[1]!r}"
    assert why["sin"].best_alternative is None
    assert why["mul"].device.startswith("/job:worker/task:2/")
    assert why["mul"].why == "chosen by last"
    assert explanation.reason(why["mul"].operation) == why["mul"]
    place, seconds = why["mul"].best_alternative
    assert place in why["mul"].alternatives
    assert seconds == min(why["mul"].alternatives.values())
    assert 0 < explanation.lower_bound <= explanation.predicted_seconds
    record = json.loads(explanation.to_json())
    assert record["strategy"] == "last"
    assert len(record["operations"]) == len(explanation.reasons)
    assert re.search(
        r"mul .* chosen by last; on .* the step takes .*, .* (more|less)\n", f"{explanation}\n"
    )
    assert explanation.trace.seconds <= explanation.predicted_seconds
    spans = {span.name: span.device for span in explanation.trace.spans}
    assert spans == {reason.operation: reason.device for reason in explanation.reasons}
    table = explanation.to_markdown()
    assert table.startswith("placed by last: predicted step time ")
    assert table.count("\n| ") == 1 + len(explanation.reasons)
    with pytest.raises(KeyError, match="needs no operation 'cos'"):
        explanation.reason("cos")


def test_auto_says_what_it_chose_among() -> None:
    with tf.connect(placement="auto"):
        explanation = tf.function(double).explain(X)
    assert {"single", "heft"} <= {*explanation.candidates}
    assert explanation.predicted_seconds <= min(explanation.candidates.values()) * 1.12
    assert "\ncandidates: " in str(explanation)


def test_a_function_that_joins_a_graph_is_explained_by_its_session() -> None:
    f = tf.function(double)
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, (5,))
        with pytest.raises(TypeError, match=r"become part of a graph .* use Session\.explain"):
            f.explain(x)


@pytest.mark.parametrize(
    ("placement", "error", "message"),
    [
        ("fastest", InvalidArgumentError, "no placement strategy 'fastest'"),
        ("no_such:place", InvalidArgumentError, "cannot be imported"),
        (3, TypeError, "name of a strategy or a function, got int"),
    ],
)
def test_what_is_no_strategy_is_refused_where_it_is_given(placement, error, message) -> None:
    with pytest.raises(error, match=message):
        tf.connect(placement=placement)
    with pytest.raises(error, match=message):
        tf.function(placement=placement)(double)


def test_a_wrong_answer_reaches_the_caller_and_runs_nothing(cluster) -> None:
    @tf.function(placement=first)
    def f(x):
        with tf.device(WORKERS[1]):
            y = jnp.sin(x)
        return y * 2.0

    with tf.connect(cluster.target):
        for call in (f, f.placement, f.explain):
            with pytest.raises(InvalidArgumentError, match=r"strategy first places .* may go"):
                call(X)

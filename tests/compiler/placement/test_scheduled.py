"""Strategies on real graphs: results are JAX's, requests hold, state stays where others find it."""

from __future__ import annotations

import importlib
import json

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jflow as tf
from jflow import errors
from jflow.compiler.placement.explain import Explanation
from jflow.compiler.schedule import Schedule
from jflow.compiler.schedule.strategies import STRATEGIES
from tests.clusters import in_process
from tests.drawn import examples
from tests.programs_of_jax import check, programs

SHIPPED = [name for name in STRATEGIES if name != "metis"]
"""Those that need no package that may not be there."""

DEVICES = ["/device:CPU:0", "/device:CPU:1", "/device:CPU:2"]


def session(graph: tf.Graph, placement) -> tf.Session:
    """A local session with a strategy."""
    return tf.Session(graph=graph, config=tf.ConfigProto(placement=placement))


def everywhere(graph, devices, costs, constraints):
    """A user's strategy that scatters the colocation classes, so that most tensors move."""
    chosen = {}
    for operation, number in zip(graph.operations, constraints.classes, strict=True):
        options = constraints.allowed.get(number, range(len(devices)))
        chosen[operation] = devices[options[number % len(options)]]
    return chosen


@settings(max_examples=examples(6))
@given(programs(DEVICES), st.sampled_from([*SHIPPED, everywhere]))
def test_a_program_gives_what_jax_gives_under_every_strategy(program, placement) -> None:
    check(program, lambda graph: session(graph, placement))


def heavy(n: int = 4, size: int = 1000) -> list[tf.Tensor]:
    """Branches that do not need each other, of a second or so of arithmetic each."""
    x = tf.constant(np.ones((size, size), np.float32))
    branches = []
    for _ in range(n):
        y = x
        for _ in range(20):
            y = tf.numpy.tanh(y @ x)
        branches.append(tf.numpy.sum(y))
    return branches


def test_auto_divides_heavy_branches_over_tasks_and_keeps_light_ones_together() -> None:
    with tf.Graph().as_default() as graph, in_process({"worker": 3}) as backend:
        fetched, light = heavy(), tf.constant(1.0) + 2.0
        with backend.session(graph=graph, config=tf.ConfigProto(placement="auto")) as sess:
            assert len({device.task for device in sess.placement(fetched).values()}) == 3
            assert len(set(sess.placement(light).values())) == 1


def test_auto_knows_that_the_cpu_devices_of_a_process_share_its_cores() -> None:
    with tf.Graph().as_default() as graph, session(graph, "auto") as sess:
        assert len(set(sess.placement(heavy()).values())) == 1


@pytest.mark.parametrize("placement", ["rules", "auto", "heft", everywhere])
def test_an_explanation_says_what_decided_and_what_else_it_would_take(placement) -> None:
    with tf.Graph().as_default() as graph:
        v = tf.Variable(tf.numpy.ones(2), name="v")
        with tf.device("/device:CPU:2"):
            pinned = tf.numpy.multiply(v, 2.0, name="pinned")
        total = tf.numpy.add(pinned, 1.0, name="total")
        with session(graph, placement) as sess:
            places = {op.name: str(device) for op, device in sess.placement(total).items()}
            explanation = sess.explain(total)
    by_name = {reason.operation: reason for reason in explanation.reasons}
    assert {name: reason.device for name, reason in by_name.items()} == places
    assert by_name["v/read"].why == "uses 'v', which lives here"
    assert by_name["pinned"].why == "asks for '/device:CPU:2'"
    assert not by_name["pinned"].alternatives
    name = placement if isinstance(placement, str) else "everywhere"
    rule = ": the first device of its task" if name == "rules" else ""
    assert by_name["total"].why == f"chosen by {name}{rule}"
    assert len(by_name["total"].alternatives) == jax.local_device_count() - 1
    assert explanation.lower_bound <= explanation.predicted_seconds
    assert str(explanation).startswith(f"placed by {name}: predicted step time ")
    record = json.loads(explanation.to_json())
    assert [one["operation"] for one in record["operations"]] == [*by_name]
    assert record["predicted_seconds"] == explanation.predicted_seconds


def test_reasons_simulate_only_the_alternatives_that_are_looked_at(monkeypatch) -> None:
    simulated = []
    monkeypatch.setattr(
        Explanation, "_seconds", lambda self, schedule: simulated.append(schedule) or 1.0
    )
    with tf.Graph().as_default() as graph, session(graph, "auto") as sess:
        explanation = sess.explain([tf.numpy.sin(tf.constant(float(i))) for i in range(300)])
        reasons = explanation.reasons
        assert len(reasons) == 600
        assert not simulated
        chosen = next(reason for reason in reasons if reason.alternatives)
        device = next(iter(chosen.alternatives))
        assert chosen.alternatives[device] == chosen.alternatives[device] == 1.0
        assert len(simulated) == 1


def test_json_of_a_large_graph_has_times_of_its_first_operations(monkeypatch) -> None:
    module = importlib.import_module("jflow.compiler.placement.explain")
    monkeypatch.setattr(module, "_SIMULATED", 1000)
    monkeypatch.setattr(module, "_SHOWN", 5)
    with tf.Graph().as_default() as graph, session(graph, "auto") as sess:
        explanation = sess.explain([tf.numpy.sin(tf.constant(float(i))) for i in range(40)])
    operations = json.loads(explanation.to_json())["operations"]
    assert len(operations) == 80
    timed = [None not in each["alternatives"].values() for each in operations]
    assert timed == [True] * 5 + [False] * 75


def test_a_step_is_explained_as_it_runs_though_the_strategy_draws_lots() -> None:
    rng, calls = np.random.default_rng(1), []

    def drawn(graph, devices, costs, constraints):
        calls.append(len(graph))
        return {op: devices[rng.integers(len(devices))] for op in graph.operations}

    with tf.Graph().as_default() as graph, session(graph, drawn) as sess:
        y = [tf.numpy.sin(tf.constant(float(i))) for i in range(4)]
        sess.run(y)
        places = sess.placement(y)
        assert {**sess.explain(y).placement} == places
        assert len(calls) == 1
        sess.run(y[0])
        assert len(calls) == 2, "another step is another problem"


def test_an_alternative_costs_what_the_step_is_predicted_to_take_there() -> None:
    """Three operations by a fixed seed run where their alternatives are, all else as it was."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, (), name="x")
        y = x
        for _ in range(6):
            y = tf.numpy.sin(y) + 1.0
        with session(graph, "heft") as sess:
            explanation = sess.explain(y, [x])
            expected = sess.run(y, {x: 0.5})
        chosen = np.random.default_rng(0).choice(len(explanation.reasons), 3, replace=False)
        for reason in (explanation.reasons[i] for i in chosen):
            for place, seconds in reason.alternatives.items():

                def moved(given, devices, costs, constraints, reason=reason, place=place):
                    names = [operation.name for operation in given.operations]
                    moving = constraints.classes[names.index(reason.operation)]
                    (there,) = (i for i, device in enumerate(devices) if str(device) == place)
                    numbers = zip(constraints.classes, explanation.schedule.devices, strict=True)
                    new = (there if number == moving else old for number, old in numbers)
                    return Schedule(tuple(new), explanation.schedule.order)

                with session(graph, moved) as sess:
                    there = sess.explain(y, [x])
                    assert there.predicted_seconds == seconds
                    assert there.reason(reason.operation).device == place
                    assert sess.run(y, {x: 0.5}) == expected


def test_what_has_no_choice_is_placed_without_the_strategy() -> None:
    def never(graph, devices, costs, constraints):
        raise AssertionError("there is nothing to choose")

    with tf.Graph().as_default() as graph, session(graph, never) as sess:
        with tf.device("/device:CPU:1"):
            v = tf.Variable(1.0)
            more = v.assign_add(1.0)
        sess.run(v.initializer)
        assert sess.run(more) == 2.0


def test_a_strategy_is_told_what_travels_together() -> None:
    with tf.Graph().as_default() as graph, session(graph, "single") as sess:
        v = tf.Variable(np.ones(4, np.float32), name="v").value()
        small, whole = tf.numpy.sin(v), tf.cast(v, tf.int32)
        large = tf.numpy.tanh(tf.constant(np.ones(2049, np.float32)) + v[0])
        text = tf.as_string(tf.numpy.cos(v))
        explanation = sess.explain([small + 1.0, whole + 1, large + 1.0, text])
    names = [op.type for op in explanation.problem.graph.operations]
    found = {
        names[edge.producer]: edge.bundle
        for edge in explanation.problem.graph.edges
        if edge.n_bytes
    }
    wanted = {"sin": "float32", "convert_element_type": "int32", "tanh": "", "cos": "", "read": ""}
    assert {name: found[name] for name in wanted} == wanted


def test_requests_and_colocation_hold_whatever_the_strategy_says() -> None:
    with tf.Graph().as_default() as graph:
        with tf.device("/device:CPU:2"):
            pinned = tf.constant([1.0, 2.0]) * 2.0
        v = tf.Variable(tf.numpy.ones(2))
        with tf.colocate_with(pinned.op):
            beside = v + 1.0
        added = tf.assign_add(v, [1.0, 1.0])
        fetched = [pinned + beside, added]
        places = {}
        for name in SHIPPED:
            with session(graph, name) as sess:
                found = {op.name: str(device) for op, device in sess.placement(fetched).items()}
                assert found[pinned.op.name].endswith("CPU:2")
                assert found[beside.op.name].endswith("CPU:2")
                places[name] = found[added.op.name]
        assert len(set(places.values())) == 1, "state does not depend on the strategy"


def test_a_function_of_a_module_is_found_by_name() -> None:
    with tf.Graph().as_default() as graph:
        total = sum(heavy(3, 10))
        with session(graph, "tests.compiler.placement.test_scheduled:everywhere") as sess:
            assert len(set(sess.placement(total).values())) == jax.local_device_count()
            assert np.isfinite(sess.run(total))


@pytest.mark.parametrize(
    ("placement", "error", "message"),
    [
        (
            "fastest",
            errors.InvalidArgumentError,
            "no placement strategy 'fastest'; there are rules",
        ),
        ("no_such:place", errors.InvalidArgumentError, "cannot be imported: No module named"),
        ("math:no_such", errors.InvalidArgumentError, "cannot be imported: .* no attribute"),
        ("math:pi", errors.InvalidArgumentError, "is not a function, but 3.14"),
        (3, TypeError, "name of a strategy or a function, got int"),
    ],
)
def test_what_is_no_strategy_is_refused_when_the_session_is_made(placement, error, message) -> None:
    with pytest.raises(error, match=message):
        session(tf.Graph(), placement)


def test_a_wrong_answer_places_nothing() -> None:
    def forgetful(graph, devices, costs, constraints):
        return {}

    with tf.Graph().as_default() as graph:
        y = tf.constant(1.0) + 2.0
        no_device = "forgetful gives no device for"
        with (
            session(graph, forgetful) as sess,
            pytest.raises(errors.InvalidArgumentError, match=no_device),
        ):
            sess.run(y)

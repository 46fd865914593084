"""Loops over devices in placement problems: how often they run, what they send, what is said."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jflow as tf
from jflow.compiler.graph.opening import Opening
from jflow.compiler.pipeline import StepRequest, expanded, prune_step
from jflow.compiler.placement import Explanation, assign, explain
from jflow.compiler.schedule.graph import Dependency
from tests.clusters import BACKENDS
from tests.compiler.partition.test_loops import CLUSTER, accumulated, forward, model, on

SIZE = 64
WEIGHTS = [np.full((SIZE, SIZE), 0.1, np.float32) for _ in range(3)]


def explained(function: Callable[..., Any], n: int) -> Explanation:
    """Explains the step of a function of weights and n microbatches, on three tasks."""
    with tf.Graph().as_default() as graph:
        xs = tf.placeholder("float32", (n, 32, SIZE))
        results = graph.apply(function, (WEIGHTS, xs))
        request = StepRequest((), tuple(jax.tree.leaves(results)), (xs,))
        opened, request = expanded(graph, request, Opening())
        ops = prune_step(opened, request)
        return explain(assign(ops, CLUSTER, soft=False, handles={}), CLUSTER.devices)


def seconds_by_operation(explanation: Explanation) -> dict[str, float]:
    return {each.operation: each.seconds for each in explanation.reasons}


def edges_between_devices(explanation: Explanation) -> list[Dependency]:
    devices = explanation.schedule.devices
    return [
        edge
        for edge in explanation.problem.graph.edges
        if edge.n_bytes > 4 and any(devices[edge.producer] != devices[i] for i in edge.consumers)
    ]


@pytest.mark.parametrize("function", [forward, accumulated])
def test_work_and_traffic_grow_with_the_number_of_iterations(function: Any) -> None:
    few, many = explained(function, 2), explained(function, 6)
    wanted = {
        name: seconds * (3 if "/" in name else 1)
        for name, seconds in seconds_by_operation(few).items()
    }
    found = seconds_by_operation(many)
    assert max(wanted.values()) > 0
    heavy = {name for name in wanted if "dot_general" in name or "tanh" in name}
    assert heavy
    for name in heavy:
        assert found[name] == pytest.approx(wanted[name], rel=1e-6), name
    activation = 32 * SIZE * 4
    sent = [edge.n_bytes for edge in edges_between_devices(many)]
    assert sent.count(6 * activation) >= 2


def test_each_device_has_one_number_of_iterations_and_the_explanation_says_the_bubble() -> None:
    one = explained(forward, 8)
    (loop,) = one.loops
    assert loop.loop.trips == 8
    assert len(loop.devices) == 3
    assert 0 < loop.bubble < 1
    assert 0 < loop.seconds <= one.predicted_seconds
    line = next(line for line in one.text().splitlines() if line.startswith("loop "))
    assert "test_loops.py:" in line
    assert "8 iterations on 3 devices" in line
    assert f"bubble {loop.bubble:.0%}" in line
    assert line in one.to_markdown()
    (record,) = json.loads(one.to_json())["loops"]
    assert record["trips"] == 8
    assert record["bubble"] == loop.bubble
    assert [*record["devices"]] == [str(each) for each in one.problem.devices]


def test_a_pipeline_is_predicted_to_overlap() -> None:
    def times(n: int) -> float:
        return explained(jax.grad(forward), n).predicted_seconds

    # 16 microbatches take less than 16 times as long as one, and each more as long as another.
    assert times(16) < 12 * times(1)
    assert times(48) - times(32) == pytest.approx(times(64) - times(48), rel=0.05)


def test_the_trace_has_a_span_for_each_part_of_each_iteration() -> None:
    one = explained(forward, 5)
    spans = [span for span in one.trace.spans if span.name.endswith("[3]")]
    assert {span.device for span in spans} == {str(each) for each in one.problem.devices}
    # The first stage computes its fourth microbatch before the last stage has its third.
    last = max(
        (span for span in one.trace.spans if span.name.endswith("[2]")), key=lambda s: s.finish
    )
    assert min(spans, key=lambda span: span.start).start < last.finish
    assert any(transfer.n_bytes == 32 * SIZE * 4 for transfer in one.trace.transfers)


def test_loops_in_loops_multiply_and_a_while_counts_once() -> None:
    def nested(weights: Any, xs: Any) -> Any:
        def body(total: Any, x: Any) -> Any:
            y = lax.fori_loop(0, 4, lambda _, y: model(weights, y), x)
            return total + jnp.sum(y), None

        return lax.scan(body, 0.0, xs)[0]

    def repeated(weights: Any, xs: Any) -> Any:
        return lax.while_loop(lambda x: jnp.sum(x) > 0, lambda x: model(weights, x), xs[0])

    def once(weights: Any, xs: Any) -> Any:
        return model(weights, xs[0])

    def products(explanation: Explanation) -> float:
        times = seconds_by_operation(explanation)
        ops: Any = explanation.problem.graph.operations
        return sum(times[op.name] for op in ops if op.type == "dot_general")

    single = products(explained(once, 3))
    assert products(explained(nested, 3)) == pytest.approx(12 * single)
    assert products(explained(repeated, 3)) == pytest.approx(single)
    assert not explained(repeated, 3).loops
    assert len(explained(nested, 3).loops) == 1


def test_a_carry_that_is_on_another_device_than_the_first_stage_keeps_iterations_apart() -> None:
    def chained(weights: Any, xs: Any) -> Any:
        def body(y: Any, x: Any) -> Any:
            y = model(weights, x + y)
            with on(2):
                return y * 0.5, None

        return lax.scan(body, jnp.zeros((32, SIZE), np.float32), xs)[0]

    apart, together = explained(chained, 12), explained(forward, 12)
    assert apart.loops[0].bubble > together.loops[0].bubble
    assert apart.predicted_seconds > 1.5 * together.predicted_seconds


def test_a_pipeline_in_a_branch_or_loop_is_predicted_as_one() -> None:
    def in_branch(weights: Any, xs: Any) -> Any:
        return lax.cond(xs[0, 0, 0] > 0, forward, lambda *_: jnp.float32(0), weights, xs)

    def in_loop(weights: Any, xs: Any) -> Any:
        return lax.fori_loop(0, 1, lambda _, c: c + forward(weights, xs), jnp.float32(0))

    alone = explained(forward, 32)
    for function in (in_branch, in_loop):
        inside = explained(function, 32)
        assert inside.loops[0].loop.trips == 32
        assert inside.predicted_seconds == pytest.approx(alone.predicted_seconds, rel=0.2)
        assert inside.lower_bound <= inside.predicted_seconds


@pytest.mark.parametrize("placement", ["heft", "auto"])
def test_a_strategy_leaves_callbacks_with_the_client(placement: str) -> None:
    called: list[float] = []

    def looped(devices: Sequence[str], xs: Any) -> Any:
        def body(total: Any, x: Any) -> Any:
            with tf.device(devices[0]):
                y = jnp.sin(x)
            jax.debug.callback(lambda y: called.append(float(y)), y, ordered=True)
            with tf.device(devices[-1]):
                return total + y, None

        return lax.scan(body, 0.0, xs)[0]

    config = tf.ConfigProto(placement=placement)
    with BACKENDS["in_process"]() as cluster, tf.Graph().as_default() as graph:
        run = partial(looped, cluster.devices)
        y = graph.apply(run, (np.arange(3, dtype="float32"),))
        with cluster.session(config=config) as session:
            np.testing.assert_allclose(session.run(y), np.sin(np.arange(3)).sum(), 1e-6)
            jax.effects_barrier()
    np.testing.assert_allclose(called, np.sin(np.arange(3)), 1e-6)

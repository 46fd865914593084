"""A gradient through segments in several processes: forward once, backward once, the same bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.compiler.partition import Partition, Segment
from jflow.compiler.pipeline import pipeline
from tests.clusters import Backend, local


@contextmanager
def _segments() -> Iterator[list[Segment]]:
    """The segments of the steps that are registered inside the block."""
    found: list[Segment] = []
    partition = pipeline.partition

    def recording(*args: Any, **options: Any) -> Partition:
        cut = partition(*args, **options)
        found.extend(cut.segments.values())
        return cut

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "partition", recording)
        yield found


def _layers(devices: list[str]) -> Any:
    """The loss of two layers, the first and the last line on one device, the middle on another."""

    def loss(params: Any, x: Any, y: Any) -> Any:
        with tf.device(devices[0]):
            hidden = jnp.tanh(x @ params["first"])
        with tf.device(devices[1]):
            logits = jax.jit(jax.nn.sigmoid)(hidden @ params["second"])
        with tf.device(devices[0]):
            return jnp.mean((logits - y) ** 2)

    return loss


def _arguments() -> Any:
    rng = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    return {"first": draw(4, 5), "second": draw(5, 2)}, draw(3, 4), draw(3, 2)


def _computed(backend: Backend) -> tuple[Any, list[Segment]]:
    with tf.connect(backend.targets[0]), _segments() as segments:
        return tf.value_and_grad(_layers(backend.devices))(*_arguments()), segments


def _kinds(segments: list[Segment]) -> list[list[str]]:
    return sorted([op.type for op in segment.ops] for segment in segments)


@pytest.mark.parametrize("backend", ["in_process", "processes"], indirect=True)
def test_a_gradient_across_tasks_is_that_of_one_process_bit_for_bit(backend: Backend) -> None:
    with local() as one_process:
        here, cut_here = _computed(one_process)
    there, cut_there = _computed(backend)
    jax.tree.map(np.testing.assert_array_equal, there, here)
    assert _kinds(cut_here) == _kinds(cut_there)
    wanted = jax.jit(jax.value_and_grad(_layers(["", ""])))(*_arguments())
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), there, wanted)


@pytest.mark.parametrize("backend", ["processes"], indirect=True)
def test_a_gradient_goes_forward_once_and_backward_once(backend: Backend) -> None:
    _, segments = _computed(backend)
    tasks = [segment.device.task.job for segment in segments]
    # There and back: first layer, second, the loss and back out of it, back through the second,
    # back through the first.
    assert Counter(tasks) == {"worker": 3, "ps": 2}
    ops = [op for segment in segments for op in segment.ops]
    assert len(set(ops)) == len(ops)
    counts = Counter(op.eqn.primitive.name for op in ops)
    inside = Counter(
        eqn.primitive.name
        for op in ops
        for body in jax.extend.core.jaxprs_in_params(op.eqn.params)
        for eqn in body.eqns
    )
    # Two products forward; backward two by the weights, one by the hidden layer.
    assert counts["dot_general"] == 5
    assert counts["tanh"] == 1
    assert (counts + inside)["logistic"] == 1
    assert counts["square"] + counts["integer_pow"] == 1

"""The example of a population: it learns, copies stay on the server, the evaluator sees no half."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest

import jflow as tf
from jflow.testing import PATIENCE_S
from tests.examples.modules import module_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "population.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return module_of(EXAMPLE)


def test_the_population_learns_beside_its_evaluator(
    example: ModuleType, coordinator: tf.ClusterCoordinator
) -> None:
    trained, tested = example.load_images()
    ended = Event()
    target = coordinator.strategy.connection.target
    with ThreadPoolExecutor(1) as pool:
        evaluator = pool.submit(example.evaluate, target, tested, 3, ended)
        copies = example.evolve(coordinator, trained, 3, 4)
        ended.set()
        accuracies = evaluator.result(PATIENCE_S)
    assert len(copies) == 4
    assert all(taker != giver for taker, giver in copies)
    assert accuracies[-1] > 0.8
    with coordinator.strategy.scope():
        taker, giver = (example.Member(number).state.value() for number in copies[-1])
    for ours, theirs in zip(
        jax.tree.leaves(taker["params"]), jax.tree.leaves(giver["params"]), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert taker["rate"] != giver["rate"]


def test_a_model_is_read_between_two_updates_while_it_is_trained(
    coordinator: tf.ClusterCoordinator,
) -> None:
    with coordinator.strategy.scope():
        first = {str(n): np.zeros(n + 1, np.float32) for n in range(12)}
        state = tf.bind(first, "model", "/job:ps/task:0")

    @tf.function
    def step(x: Any) -> None:
        state.assign(jax.tree.map(lambda value: value + x, state.value()))

    seen: list[float] = []
    with tf.connect(coordinator.strategy.connection.target):
        follower = tf.bind(first, "model", "/job:ps/task:0")
        steps = []
        while len({*seen}) < 20:
            if not steps or steps[-1].done():
                steps += [coordinator.schedule(step, args=(1.0,), worker=0) for _ in range(50)]
            values = {float(x) for leaf in jax.tree.leaves(follower.value()) for x in leaf}
            assert len(values) == 1
            seen.append(values.pop())
    coordinator.join()
    assert seen == sorted(seen)
    with coordinator.strategy.scope():
        assert float(state.value()["3"][0]) == len(steps)

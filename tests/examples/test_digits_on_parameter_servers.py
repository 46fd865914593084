"""The example with digits: workers learn as well as steps one after the other, also if killed."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import jflow as tf
from jflow.testing import PATIENCE_S, ProcessCluster, start_servers, wait_until
from jflow.training.coordinator import ClusterCoordinator
from jflow.training.parameter_servers import ParameterServerStrategy
from tests.examples.modules import module_of

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "digits_on_parameter_servers.py"
N_STEPS = 300
N_WORKERS, N_ROUNDS, STEPS_A_ROUND = 2, 12, 50


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return module_of(EXAMPLE)


@pytest.mark.long
def test_two_workers_that_do_not_wait_learn_as_well_as_one_after_the_other(
    example: ModuleType,
) -> None:
    trained, tested = example.load_images()
    with tf.connect():
        expected = example.train_one_by_one(trained, N_STEPS).accuracy(tested)
    assert expected > 0.9
    with ExitStack() as stack:
        servers = start_servers(stack.enter_context, {"ps": 1, "worker": 2})
        strategy = tf.distribute.ParameterServerStrategy(servers[0].cluster_spec)
        stack.callback(strategy.close)
        model = example.train_on_workers(strategy, trained, N_STEPS, show=lambda _: None)
        assert int(model.optimizer.iterations.numpy()) == N_STEPS
        assert model.accuracy(tested) >= expected - 0.01


def train_under_kills(example: ModuleType, cluster: ProcessCluster, images: Any, path: Path) -> Any:
    """Trains with a worker killed in each round, and the parameter server in one of them."""
    rng = random.Random(0)
    strategy = ParameterServerStrategy(cluster.cluster_spec)
    coordinator = ClusterCoordinator(strategy, on_ps_failure="restore", checkpoint=path / "model")
    with strategy.scope():
        model = example.Classifier()

    def make_batches(context: tf.distribute.InputContext) -> tf.data.Dataset:
        return example.batches(images, context.num_input_pipelines, context.input_pipeline_id)

    @tf.function
    def step(iterator: Any) -> Any:
        return model.update(example.Images(*next(iterator)))

    iterator = iter(
        coordinator.create_per_worker_dataset(
            lambda: strategy.distribute_datasets_from_function(make_batches)
        )
    )
    for number in range(N_ROUNDS):
        losses = [coordinator.schedule(step, args=(iterator,)) for _ in range(STEPS_A_ROUND)]
        # Somewhere in the round, when it has begun and has not ended.
        begun = losses[rng.randrange(STEPS_A_ROUND // 2)]
        wait_until(begun.done, "a step to end")
        victim = ("ps", 0) if number == N_ROUNDS // 2 else ("worker", rng.randrange(N_WORKERS))
        cluster.kill(*victim)
        cluster.restart(*victim)
        coordinator.join(PATIENCE_S)
        coordinator.save()
    assert coordinator.n_restored >= 1
    assert coordinator.metrics().worker_failures >= N_ROUNDS // 2
    coordinator.close()
    return model


@pytest.mark.long
def test_accuracy_under_kills_is_that_of_steps_one_after_the_other_within_a_point(
    example: ModuleType, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    trained, tested = example.load_images()
    with tf.connect():
        model = example.train_one_by_one(trained, N_ROUNDS * STEPS_A_ROUND)
        expected = model.accuracy(tested)
    with ProcessCluster(ps=1, workers=N_WORKERS) as cluster:
        found = train_under_kills(example, cluster, trained, tmp_path).accuracy(tested)
    record_property("accuracies", f"{found:.4f} under kills, {expected:.4f} one after the other")
    assert found >= expected - 0.01

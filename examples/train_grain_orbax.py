"""A pipeline of Grain for each worker, and checkpoints of Orbax's `CheckpointManager`.

    python examples/train_grain_orbax.py

It needs Orbax: `pip install 'jflow[orbax]'`. Started again with the same `--directory`, it goes on
from the last checkpoint.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grain
import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
from digits import Images, load_images
from train_optax import accuracy, initial_params, loss_of

import jflow as tf

BATCH = 64
STEPS_A_CHECKPOINT = 100


def batches(images: Images, context: tf.distribute.InputContext) -> tf.data.Dataset:
    """The pipeline of a worker, with images of its own."""
    pipeline = (
        grain.MapDataset.source(range(len(images.digits)))
        .slice(slice(context.input_pipeline_id, None, context.num_input_pipelines))
        .shuffle(seed=context.input_pipeline_id)
        .map(lambda row: Images(images.pixels[row], images.digits[row]))
        .repeat()
        .batch(BATCH, drop_remainder=True)
    )
    return tf.data.Dataset.from_iterable(pipeline)


def train(
    coordinator: tf.ClusterCoordinator,
    images: Images,
    directory: Path,
    n_steps: int,
    show: Callable[..., Any] = print,
) -> Any:
    """Trains on the workers of a coordinator up to a number of steps; returns the parameters."""
    with coordinator.strategy.scope():
        state = tf.bind(initial_params(jax.random.key(0)), "digits")
        optimizer = tf.train.Optimizer(optax.adam(2e-3))
        optimizer.build(state.trainable_variables)

    @tf.function
    def step(iterator: Any) -> Any:
        loss, grads = tf.value_and_grad(loss_of)(state, next(iterator))
        optimizer.apply_gradients(state.pairs(grads))
        return loss

    @tf.function
    def snapshot() -> Any:
        return {"model": state.value(), "optimizer": [v.value() for v in optimizer.variables()]}

    dataset = coordinator.create_per_worker_dataset(
        lambda: coordinator.strategy.distribute_datasets_from_function(
            lambda context: batches(images, context)
        )
    )
    iterator = iter(dataset)
    with ocp.CheckpointManager(directory) as manager, coordinator.strategy.scope():
        begun = manager.latest_step() or 0
        if begun:
            saved = manager.restore(begun, args=ocp.args.StandardRestore(snapshot()))
            state.assign(saved["model"])
            for variable, value in zip(optimizer.variables(), saved["optimizer"], strict=True):
                variable.assign(value)
            show(f"goes on from step {begun}")
        for done in range(begun, n_steps, STEPS_A_CHECKPOINT):
            losses = [
                coordinator.schedule(step, args=(iterator,)) for _ in range(STEPS_A_CHECKPOINT)
            ]
            coordinator.join()
            manager.save(done + STEPS_A_CHECKPOINT, args=ocp.args.StandardSave(snapshot()))
            mean = np.mean([loss.fetch() for loss in losses])
            show(f"step {done + STEPS_A_CHECKPOINT}: loss {mean:.3f}")
    return state.value()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--directory", type=Path, default=None, help="where checkpoints are")
    options = parser.parse_args()
    directory = (options.directory or Path(tempfile.mkdtemp())).absolute()
    trained, tested = load_images()
    with tf.LocalCluster(ps=1, workers=2) as cluster:
        strategy = tf.distribute.ParameterServerStrategy(cluster.cluster_spec)
        with tf.ClusterCoordinator(strategy) as coordinator:
            params = train(coordinator, trained, directory, options.steps)
        strategy.close()
    print(f"accuracy {accuracy(params, tested):.3f}")


if __name__ == "__main__":
    main()

"""A step of `examples/pipelined_transformer.py`: stages, meshes, one device, and without jflow."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import numpy as np

import jflow as tf
from bench.cases.shard_map_pipeline import N_STAGES, ByHand
from bench.timing import alternate, tell
from examples import pipelined_transformer as example

N_MICROBATCHES, WIDTH = 8, 128


def main() -> None:
    """Steps of one model, which take turns; their first losses are the same."""
    jax.config.update("jax_num_cpu_devices", N_STAGES)
    texts = example.Texts(N_MICROBATCHES)
    layers = example.make_layers(texts.n_characters, WIDTH)
    ways = {
        "transformer step, two stages": (example.TWO_DEVICES, jax.lax.scan),
        "transformer step, two stages on meshes of two": (example.FOUR_STAGES[::2], jax.lax.scan),
        "transformer step, one device": (example.ONE_DEVICE, jax.lax.scan),
        "transformer step, Python loop over two stages": (example.TWO_DEVICES, example.unrolled),
    }
    batch = texts(0)
    with example.start_cluster() as cluster, tf.connect(cluster.target()):
        steps: dict[str, Callable[[], float]] = {}
        losses = []
        for name, (devices, scan) in ways.items():
            model = example.Pipeline(layers, devices, scan)
            losses.append(float(model.step(batch)))
            steps[name] = partial(lambda model: float(model.step(batch)), model)
        by_hand = ByHand(layers)
        losses.append(by_hand.step(batch))
        steps["transformer step, shard_map in one process"] = lambda: by_hand.step(batch)
        np.testing.assert_allclose(losses, losses[0], 1e-4)
        tell(alternate(steps, n=1))


if __name__ == "__main__":
    main()

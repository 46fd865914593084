"""An asynchronous run, in which a worker is killed, is recorded and then computed again.

    python examples/replay_a_run.py

Two workers classify digits and do not wait for each other, so no two runs are the same. From its
log the run is computed again in this process, bit for bit; the replay then goes to the moment
before the update that had missed the most updates of others.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from digits import Images, load_images
from digits_on_parameter_servers import Classifier, batches, logits_of

import jflow as tf


def train_and_record(images: Images, n_steps: int, log: str) -> dict[str, Any]:
    """Trains on two workers, of which one is killed half way; returns the parameters."""
    with tf.LocalCluster(ps=2, workers=2) as cluster:
        config = tf.ConfigProto(record=log)
        strategy = tf.distribute.ParameterServerStrategy(cluster.cluster_spec, config=config)
        with strategy.scope():
            model = Classifier()
        step = tf.function(lambda pixels, digits: model.update(Images(pixels, digits)))
        with tf.distribute.coordinator.ClusterCoordinator(strategy) as coordinator:
            drawn = zip(range(n_steps), batches(images), strict=False)
            losses = [coordinator.schedule(step, batch) for _, batch in drawn]
            losses[n_steps // 2].fetch()
            cluster.kill("worker", 1)
            coordinator.join()
            print(f"a worker was killed; the last loss is {losses[-1].fetch():.3f}")
        params = {name: variable.numpy() for name, variable in model.params.items()}
        strategy.close()
    return params


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    n_steps = parser.parse_args().steps
    trained, tested = load_images()
    with tempfile.TemporaryDirectory() as directory:
        log = str(Path(directory) / "run.jlog")
        params = train_and_record(trained, n_steps, log)
        with tf.Replay(log) as replay:
            updates = [step for step in replay if step.number]
            same = all(np.array_equal(replay.value(name), params[name]) for name in params)
        print(f"{len(updates)} updates were computed again; the same bits: {same}")
        counts = sorted(Counter(step.staleness for step in updates).items())
        print("updates by how many others they missed:", dict(counts))
        stalest = max(updates, key=lambda step: step.staleness)
        with tf.Replay(log).run(until=stalest.number - 1) as replay:
            before = accuracy(replay, tested)
            replay.run(until=stalest.number)
            after = accuracy(replay, tested)
        print(
            f"update {stalest.number} missed {stalest.staleness}; accuracy before it {before:.3f}, "
            f"after it {after:.3f}"
        )


def accuracy(replay: tf.Replay, images: Images) -> float:
    """The accuracy of the parameters at this moment of a replay."""
    names = ("hidden", "hidden_bias", "out", "out_bias")
    found = np.argmax(logits_of({name: replay.value(name) for name in names}, images.pixels), 1)
    return float(np.mean(found == images.digits))


if __name__ == "__main__":
    main()

"""The example with digits on a cluster of Ray actors.

    python examples/digits_on_ray.py

It uses the Ray that RAY_ADDRESS names, or starts one on this machine, and needs `jflow[ray]`.
"""

from __future__ import annotations

import argparse

from digits import load_images
from digits_on_parameter_servers import Classifier, train_on_workers

import jflow as tf


def train(n_steps: int, **options: object) -> tuple[Classifier, float]:
    """Trains on a cluster with these options; returns the model and its accuracy."""
    trained, tested = load_images()
    with tf.RayCluster(ps=1, workers=2, **options) as cluster:
        print(f"tasks {cluster.cluster_spec.as_dict()}")
        strategy = tf.distribute.ParameterServerStrategy(cluster.cluster_spec)
        model = train_on_workers(strategy, trained, n_steps)
        accuracy = model.accuracy(tested)
        strategy.close()
    return model, accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--cpus", type=float, default=1.0, help="CPUs that each task reserves")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs of each worker")
    options = parser.parse_args()
    _, accuracy = train(options.steps, cpus=options.cpus, gpus=options.gpus)
    print(f"accuracy of steps of two workers {accuracy:.3f}")


if __name__ == "__main__":
    main()

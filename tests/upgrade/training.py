"""A training on parameter servers, for the code of any release; started again, it goes on.

`python training.py SETTINGS`, with the settings as JSON: the cluster, the path of the checkpoint,
and how many closures a round has. Each round begins with a line of its input, and ends with a save;
then it says what it has learnt. It ends with its input.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import jax.numpy as jnp
import numpy as np

import jflow as tf

WANTED = np.linspace(-1, 1, 8, dtype=np.float32)


def main(settings: dict[str, Any]) -> None:
    strategy = tf.distribute.ParameterServerStrategy(tf.train.ClusterSpec(settings["cluster"]))
    coordinator = tf.ClusterCoordinator(
        strategy, on_ps_failure="restore", checkpoint=settings["checkpoint"]
    )
    with strategy.scope():
        weights = tf.Variable(np.zeros(8, np.float32), name="weights")
        counts = [
            tf.Variable(np.int64(0), name=f"count_{i}")
            for i in range(len(settings["cluster"]["ps"]))
        ]

    @tf.function
    def step(features: Any) -> Any:
        def loss(w: Any) -> Any:
            return jnp.mean((features @ (w - WANTED)) ** 2)

        value, slope = tf.value_and_grad(loss)(weights)
        weights.assign_sub(0.002 * slope)  # so that it goes on learning until the end
        for one in counts:
            one.assign_add(1)
        return value

    @tf.function
    def read() -> Any:
        return [one.read_value() for one in counts]

    def counted() -> list[int]:
        # On a worker, so that the loss of a parameter server is a pause.
        return [int(one) for one in coordinator.fetch(coordinator.schedule(read))]

    rng = np.random.default_rng(0)
    about = coordinator.restore()
    start = 0 if about is None else int(about["round"])
    tell(started=counted(), round=start)
    for number in range(start + 1, 1 << 20):
        if not sys.stdin.readline():
            return
        began, before, n_restored = time.monotonic(), counted(), coordinator.n_restored
        batches = rng.normal(size=(settings["n_closures"], 16, 8)).astype(np.float32)
        losses = [coordinator.schedule(step, (one,), effects="exactly_once") for one in batches]
        coordinator.join()
        coordinator.save({"round": str(number)})
        tell(
            round=number,
            before=before,
            after=counted(),
            n_restored=coordinator.n_restored - n_restored,
            n_rerun=coordinator.metrics().put_back,
            loss=float(np.mean([one.fetch() for one in losses])),
            seconds=time.monotonic() - began,
        )


def tell(**message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

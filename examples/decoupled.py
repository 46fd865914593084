"""Learners in processes of their own train one model; one is slow, one is killed, one comes late.

    python examples/decoupled.py

Each learner classifies digits by itself, with Adam, and exchanges fragments of its model through
variables on two parameter servers. No learner waits for another one in its steps.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from typing import Any

import jax
import numpy as np
import optax
from digits import Images, load_images
from train_optax import accuracy, initial_params, loss_of

import jflow as tf

BATCH, EVERY = 64, 10
DEVICES = ["/job:ps/task:0", "/job:ps/task:1"]
INNER = optax.adam(2e-3)
OUTER = optax.sgd(0.7, momentum=0.5, nesterov=True)  # of 0.9 it needs more merges than a few dozen


@jax.jit
def inner_step(params: Any, state: Any, images: Images) -> Any:
    """A step of a learner by itself: new parameters and state, and the loss."""
    loss, grads = jax.value_and_grad(loss_of)(params, images)
    updates, state = INNER.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss


def open_model(seed: int = 0) -> tf.train.Decoupled:
    """The model on the cluster, which the first program makes."""
    params = initial_params(jax.random.key(seed))
    options = {"fragments": 2, "every": EVERY, "quorum": 2, "grace": 0.2, "outer": OUTER}
    return tf.train.Decoupled(params, f"digits_{seed}", DEVICES, **options)


def learn(
    learner: tf.train.Learner, images: Images, n_steps: int, seed: int, pause: float = 0.0
) -> float:
    """Makes steps on random batches; returns the mean loss of the last ones."""
    rng, params, losses = np.random.default_rng(seed), learner.params, []
    state = INNER.init(params)
    for _ in range(n_steps):
        rows = rng.choice(len(images.digits), BATCH)
        batch = Images(images.pixels[rows], images.digits[rows])
        params, state, loss = inner_step(params, state, batch)
        params = learner.step(params, tokens=BATCH)
        losses.append(loss)
        time.sleep(pause)
    return float(np.mean(losses[-20:]))


def learn_alone(images: Images, n_steps: int, seed: int) -> Any:
    """The same steps in one process, without merges; returns the parameters."""
    rng, params = np.random.default_rng(seed), initial_params(jax.random.key(seed))
    state = INNER.init(params)
    for _ in range(n_steps):
        rows = rng.choice(len(images.digits), BATCH)
        batch = Images(images.pixels[rows], images.digits[rows])
        params, state, _ = inner_step(params, state, batch)
    return params


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--target", help="of the cluster, for a learner", default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after each step")
    options = parser.parse_args()
    trained, tested = load_images()
    if options.target:
        with tf.connect(options.target), open_model().join() as learner:
            loss = learn(learner, trained, options.steps, options.seed, options.pause)
            print(f"learner {learner.number} ends after {learner.n_steps} steps: loss {loss:.3f}")
        return
    with tf.LocalCluster(ps=2, workers=0) as cluster, tf.connect(cluster.target("ps", 0)):
        model = open_model()

        def start(seed: int, pause: float = 0.0) -> subprocess.Popen[bytes]:
            command = [sys.executable, __file__, "--target", cluster.target("ps", 0)]
            more = ["--steps", str(options.steps), "--seed", str(seed), "--pause", str(pause)]
            return subprocess.Popen([*command, *more])

        learners = [start(0, 0.01), start(1, 0.015), start(2, 0.03)]
        while min(model.n_merges()) < 2:
            time.sleep(0.05)
        learners.pop().kill()
        print("a learner is killed, and another one joins")
        learners.append(start(3, 0.01))
        for process in learners:
            process.wait()
        print(f"merges of each fragment: {model.n_merges()}")
        print(f"accuracy of learners apart {accuracy(model.value(), tested):.3f}")
    alone = accuracy(learn_alone(trained, options.steps, 0), tested)
    print(f"accuracy of one learner alone {alone:.3f}")


if __name__ == "__main__":
    main()

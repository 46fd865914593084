"""A loop of one's own with an optimizer of Optax; the model is a dict of arrays.

    python examples/train_optax.py

The variables are on two parameter servers, and the steps run on a worker. A program that binds the
model again, while the servers live, goes on with what is there.
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from digits import Images, load_images

import jflow as tf

BATCH = 64


def initial_params(key: Any) -> Any:
    """The parameters of a network of one hidden layer."""
    first, second = jax.random.split(key)
    return {
        "hidden": {"kernel": 0.1 * jax.random.normal(first, (64, 64)), "bias": jnp.zeros(64)},
        "out": {"kernel": 0.1 * jax.random.normal(second, (64, 10)), "bias": jnp.zeros(10)},
    }


def logits_of(params: Any, pixels: Any) -> Any:
    hidden = jax.nn.relu(pixels @ params["hidden"]["kernel"] + params["hidden"]["bias"])
    return hidden @ params["out"]["kernel"] + params["out"]["bias"]


def loss_of(params: Any, images: Images) -> Any:
    logits = logits_of(params, images.pixels)
    return optax.softmax_cross_entropy_with_integer_labels(logits, images.digits).mean()


def train(target: str, images: Images, n_epochs: int) -> Any:
    """Trains on the task of a target; returns the parameters."""
    with tf.connect(target):
        devices = {"hidden/*": "/job:ps/task:0", "out/*": "/job:ps/task:1"}
        state = tf.bind(initial_params(jax.random.key(0)), "digits", devices)
        schedule = optax.cosine_decay_schedule(5e-3, n_epochs * len(images.digits) // BATCH)
        optimizer = tf.train.Optimizer(
            optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))
        )

        @tf.function
        def step(batch: Images) -> Any:
            loss, grads = tf.value_and_grad(loss_of)(state, batch)
            optimizer.apply_gradients(state.pairs(grads))
            return loss

        for epoch in range(n_epochs):
            order = np.random.default_rng(epoch).permutation(len(images.digits))
            losses = []
            for rows in np.array_split(order, len(order) // BATCH):
                losses.append(step(Images(images.pixels[rows], images.digits[rows])))
            print(f"epoch {epoch}: loss {np.mean(losses):.3f}")
        return state.value()


def accuracy(params: Any, images: Images) -> float:
    """The share of images whose digit is recognized."""
    found = np.argmax(logits_of(params, images.pixels), axis=1)
    return float(np.mean(found == images.digits))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    trained, tested = load_images()
    with tf.LocalCluster(ps=2, workers=1) as cluster:
        params = train(cluster.target("worker", 0), trained, parser.parse_args().epochs)
    print(f"accuracy {accuracy(params, tested):.3f}")


if __name__ == "__main__":
    main()

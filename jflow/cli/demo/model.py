"""The classifier of the demo, as graph code for a cluster and as plain JAX for one process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jflow as tf
from jflow.base.values import Array
from jflow.cli.demo.digits import N_CLASSES, N_PIXELS, Split

BATCH = 64
RATE = 0.5
CONTAINER = "digits"
_HIDDEN = 64


def initial_values(seed: int = 0) -> dict[str, Array]:
    """Returns the float32 weights and biases of two layers, by name."""
    random = np.random.default_rng(seed)
    sizes = {"hidden": (N_PIXELS, _HIDDEN), "output": (_HIDDEN, N_CLASSES)}
    values: dict[str, Array] = {}
    for layer, (n_in, n_out) in sizes.items():
        values[f"{layer}_w"] = random.normal(0, n_in**-0.5, (n_in, n_out)).astype(np.float32)
        values[f"{layer}_b"] = np.zeros(n_out, np.float32)
    return values


@dataclass(frozen=True)
class Model:
    """The tensors and operations of the graph of one worker."""

    images: tf.Tensor
    labels: tf.Tensor
    loss: tf.Tensor
    train: tf.Operation
    initialize: tf.Operation
    test_images: tf.Tensor
    predictions: tf.Tensor
    variables: list[tf.Variable]

    @property
    def step(self) -> tuple[list[Any], list[tf.Tensor]]:
        """What a training step fetches, and what it is fed."""
        return [self.loss, self.train], [self.images, self.labels]


def build(n_test: int) -> Model:
    """Builds the training step in the default graph.

    Nothing asks for a device: variables are placed on the parameter server, so that all sessions
    find them, and the strategy of the session places the computation.
    """
    with tf.container(CONTAINER):
        variables = {name: tf.Variable(v, name=name) for name, v in initial_values().items()}
    images = tf.placeholder(tf.float32, (BATCH, N_PIXELS), name="images")
    labels = tf.placeholder(tf.float32, (BATCH, N_CLASSES), name="labels")
    loss = -tf.numpy.mean(
        tf.numpy.sum(labels * tf.nn.log_softmax(_logits(images, variables)), axis=1)
    )
    gradients = tf.gradients(loss, list(variables.values()))
    updates = [
        variable.assign_sub(RATE * gradient)
        for variable, gradient in zip(variables.values(), gradients, strict=True)
    ]
    test_images = tf.placeholder(tf.float32, (n_test, N_PIXELS), name="test_images")
    predictions = tf.numpy.argmax(_logits(test_images, variables), axis=1)
    return Model(
        images,
        labels,
        loss,
        tf.group(*updates, name="train"),
        tf.global_variables_initializer(),
        test_images,
        predictions,
        list(variables.values()),
    )


def _logits(images: Any, values: Any) -> Any:
    hidden = tf.nn.relu(tf.numpy.dot(images, values["hidden_w"]) + values["hidden_b"])
    return tf.numpy.dot(hidden, values["output_w"]) + values["output_b"]


def accuracy(predictions: Array, labels: Array) -> float:
    """The fraction of correct predictions, from 0 to 1."""
    return float(np.mean(predictions == labels.argmax(axis=1)))


def train_with_jax(training: Split, test: Split, n_steps: int) -> float:
    """Trains the same model in one process, for `n_steps`; returns its accuracy on `test`."""

    def logits(values: dict[str, Any], images: Any) -> Any:
        hidden = jax.nn.relu(images @ values["hidden_w"] + values["hidden_b"])
        return hidden @ values["output_w"] + values["output_b"]

    def loss(values: dict[str, Any], images: Any, labels: Any) -> Any:
        return -jnp.mean(jnp.sum(labels * jax.nn.log_softmax(logits(values, images)), axis=1))

    @jax.jit
    def step(values: dict[str, Any], images: Any, labels: Any) -> dict[str, Any]:
        slopes = jax.grad(loss)(values, images, labels)
        return {name: value - RATE * slopes[name] for name, value in values.items()}

    values: dict[str, Any] = dict(initial_values())
    for images, labels in training.batches(BATCH, n_steps, seed=0):
        values = step(values, images, labels)
    return accuracy(np.asarray(logits(values, test.images).argmax(axis=1)), test.labels)

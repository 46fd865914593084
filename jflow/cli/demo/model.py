"""The model of `jflow demo`: two towers, one for each half of a handwritten digit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jflow as tf
from jflow.base.values import Array

BATCH = 16
CONTAINER = "digits"
TOWERS = {"left": "/job:worker/task:0", "right": "/job:worker/task:1"}
"""The worker of each tower."""

NOWHERE: Mapping[str, str] = MappingProxyType({})
"""No device for any tower."""

_SIDE, _HALF, _N_CLASSES = 8, 4, 10
_WIDTH, _N_FEATURES = 1536, 32
_RATE = 0.03
_N_TRAINING = 1_437
_SEED = 0


@dataclass(frozen=True)
class Split:
    """Images f32[n, 64] with values from 0 to 1, and one-hot labels f32[n, 10]."""

    images: Array
    labels: Array

    def batch(self, number: int) -> tuple[Array, Array]:
        """Returns the random batch of a step, which is the same whenever it is taken."""
        chosen = np.random.default_rng(number).choice(len(self.images), BATCH, replace=False)
        return self.images[chosen], self.labels[chosen]


def load_digits() -> tuple[Split, Split]:
    """Returns the training split (1,437 examples) and the test split (360), always the same."""
    with files("jflow.cli.demo").joinpath("digits.npz").open("rb") as file:
        stored = np.load(file, allow_pickle=False)
        images, labels = stored["images"], stored["labels"]
    order = np.random.default_rng(_SEED).permutation(len(images))
    pixels = (images[order] / 16).astype(np.float32)
    one_hot = np.eye(_N_CLASSES, dtype=np.float32)[labels[order]]
    return (
        Split(pixels[:_N_TRAINING], one_hot[:_N_TRAINING]),
        Split(pixels[_N_TRAINING:], one_hot[_N_TRAINING:]),
    )


def initial_values() -> dict[str, Array]:
    """Returns the float32 weights by name: three layers of each tower, and the last layer."""
    random = np.random.default_rng(_SEED)
    layers = [(_SIDE * _HALF, _WIDTH), (_WIDTH, _WIDTH), (_WIDTH, _N_FEATURES)]
    shapes = {f"{side}/w{i}": shape for side in TOWERS for i, shape in enumerate(layers)}
    shapes["last/w"] = (len(TOWERS) * _N_FEATURES, _N_CLASSES)
    return {
        name: random.normal(0, (2 / shape[0]) ** 0.5, shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def halves(images: Any) -> dict[str, Any]:
    """Returns both halves of images [n, 64], by tower: [n, 32]."""
    pixels = images.reshape(-1, _SIDE, _SIDE)
    return {
        side: pixels[:, :, i * _HALF : (i + 1) * _HALF].reshape(-1, _SIDE * _HALF)
        for i, side in enumerate(TOWERS)
    }


def _tower(half: Any, values: Mapping[str, Any], side: str) -> Any:
    for layer in range(3):
        half = jax.nn.relu(half @ values[f"{side}/w{layer}"])
    return half


def _logits(images: Any, values: Mapping[str, Any], devices: Mapping[str, str] = NOWHERE) -> Any:
    features = []
    for side, half in halves(images).items():
        with tf.device(devices.get(side)), jax.named_scope(side):
            features.append(_tower(half, values, side))
    return jnp.concatenate(features, 1) @ values["last/w"]


def _loss(
    values: Mapping[str, Any], images: Any, labels: Any, devices: Mapping[str, str] = NOWHERE
) -> Any:
    logits = _logits(images, values, devices)
    return -jnp.mean(jnp.sum(labels * jax.nn.log_softmax(logits), axis=1))


@dataclass(frozen=True)
class Model:
    """The tensors of the graph of one program; `number` trains, and counts the steps."""

    images: tf.Tensor
    labels: tf.Tensor
    loss: tf.Tensor
    number: tf.Tensor
    test_images: tf.Tensor
    predictions: tf.Tensor
    variables: dict[str, tf.Variable]

    @property
    def step(self) -> tuple[list[Any], list[tf.Tensor]]:
        """What a training step fetches, and what it is fed."""
        return [self.loss, self.number], [self.images, self.labels]


def build(
    n_test: int, towers: Mapping[str, str] = TOWERS, *, parameters: Mapping[str, str] = TOWERS
) -> Model:
    """Builds the training step in the default graph.

    What is no tower requests no device: the parameters of the last layer are on the parameter
    server, where variables are by default, and the placement strategy chooses for the rest.

    Args:
      n_test: the number of images of a test.
      towers: the device that computes each tower.
      parameters: the device of the parameters of each tower.
    """
    values = initial_values()
    with tf.container(CONTAINER):
        variables = {}
        for name, value in values.items():
            with tf.device(parameters.get(name.partition("/")[0])):
                variables[name] = tf.Variable(value, name=name)
        global_step = tf.train.create_global_step()
    size = _SIDE * _SIDE
    images = tf.placeholder(tf.float32, (BATCH, size), name="images")
    labels = tf.placeholder(tf.float32, (BATCH, _N_CLASSES), name="labels")

    @tf.function
    def cross_entropy(values: Any, images: Any, labels: Any) -> Any:
        return _loss(values, images, labels, towers)

    @tf.function
    def predict(values: Any, images: Any) -> Any:
        return jnp.argmax(_logits(images, values, towers), axis=1)

    loss = cross_entropy(variables, images, labels)
    optimizer = tf.train.GradientDescentOptimizer(_RATE)
    with tf.control_dependencies([optimizer.minimize(loss, global_step, name="train")]):
        number = global_step.read_value()
    test_images = tf.placeholder(tf.float32, (n_test, size), name="test_images")
    return Model(
        images,
        labels,
        loss,
        number,
        test_images,
        predict(variables, test_images),
        variables,
    )


def accuracy(predictions: Array, labels: Array) -> float:
    """Returns the fraction of correct predictions, from 0 to 1."""
    return float(np.mean(predictions == labels.argmax(axis=1)))


def train_with_jax(training: Split, test: Split, n_steps: int) -> float:
    """Trains the same model in one process, for `n_steps`; returns its accuracy on `test`."""

    @jax.jit
    def step(values: dict[str, Any], images: Any, labels: Any) -> dict[str, Any]:
        slopes = jax.grad(_loss)(values, images, labels)
        return {name: value - _RATE * slopes[name] for name, value in values.items()}

    values: dict[str, Any] = dict(initial_values())
    for number in range(n_steps):
        values = step(values, *training.batch(number))
    return accuracy(np.asarray(_logits(test.images, values).argmax(axis=1)), test.labels)

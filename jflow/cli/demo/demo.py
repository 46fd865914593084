"""`jflow demo`: a cluster, placement, asynchronous training, shared state, a picture, a reset."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jflow as tf
from jflow.base.progress import Progress
from jflow.base.text import seconds_text
from jflow.base.values import Array
from jflow.view.picture import save_picture

N_PIXELS, N_CLASSES = 64, 10
_N_TRAINING = 1_437
_SEED = 0


@dataclass(frozen=True)
class Split:
    """Images f32[n, 64] with values from 0 to 1, and one-hot labels f32[n, 10]."""

    images: Array
    labels: Array

    def batches(self, size: int, n_batches: int, seed: int) -> Iterator[tuple[Array, Array]]:
        """Yields `n_batches` random batches of `size` examples."""
        random = np.random.default_rng(seed)
        for _ in range(n_batches):
            chosen = random.choice(len(self.images), size, replace=False)
            yield self.images[chosen], self.labels[chosen]


def load_digits() -> tuple[Split, Split]:
    """Returns the training split (1,437 examples) and the test split (360), always the same."""
    with files("jflow.cli.demo").joinpath("digits.npz").open("rb") as file:
        stored = np.load(file, allow_pickle=False)
        images, labels = stored["images"], stored["labels"]
    order = np.random.default_rng(_SEED).permutation(len(images))
    pixels = (images[order] / 16).astype(np.float32)
    one_hot = np.eye(N_CLASSES, dtype=np.float32)[labels[order]]
    return (
        Split(pixels[:_N_TRAINING], one_hot[:_N_TRAINING]),
        Split(pixels[_N_TRAINING:], one_hot[_N_TRAINING:]),
    )


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
    """Returns the fraction of correct predictions, from 0 to 1."""
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


N_WORKERS = 2
STEPS_PER_WORKER = 400
STRATEGIES = ("auto", "single", "round_robin", "rules")
CONFIG = tf.ConfigProto(placement=STRATEGIES[0])


def run_demo(picture: Path) -> None:
    """Runs the demo and prints what it does.

    Args:
      picture: the file for the picture of the placed graph, in SVG.
    """
    started = time.perf_counter()
    training, test = load_digits()
    print("1. A cluster on this machine: one parameter server and two workers, three processes.")
    with tf.LocalCluster(ps=1, workers=N_WORKERS) as cluster:
        for task in cluster.tasks:
            print(f"   {task} at {cluster.cluster_spec.task_address(task.job, task.index)}")
        print("2. A training step, by the strategy that places it: predicted time, operations.")
        _compare(cluster)
        print("3. A client of each worker trains one model on handwritten digits, at its own pace.")
        trained = _train(cluster, training, test)
        plain = train_with_jax(training, test, N_WORKERS * STEPS_PER_WORKER)
        print(f"   accuracy on {len(test.images)} images it has not seen: {trained:.1%}")
        print(f"   the same model by plain JAX in one process:   {plain:.1%}")
        print("4. A new session on the other worker sees the trained variables:")
        print(f"   accuracy there, without any training: {_look(cluster, test, picture):.1%}")
        print(f"   a picture of the placed graph is in {picture}")
        print(f"5. Resetting the container {CONTAINER!r} frees them:")
        _reset(cluster)
    print(f"Done in {time.perf_counter() - started:.0f} s; no process is left.")


def _compare(cluster: tf.LocalCluster) -> None:
    """Prints the predicted time of a training step under each strategy, and where it would run."""
    with tf.Graph().as_default():
        model = build(1)
        for placement in STRATEGIES:
            config = tf.ConfigProto(placement=placement)
            with tf.Session(cluster.target("worker", 0), config=config) as session:
                explanation = session.explain(*model.step)
            n_ops = Counter(str(device.task) for device in explanation.placement.values())
            places = ", ".join(f"{n} on {task}" for task, n in sorted(n_ops.items()))
            time_taken = seconds_text(explanation.predicted_seconds)
            print(f"   {placement:11} {time_taken:>8}   {places}")
            if placement == STRATEGIES[0]:
                bound = seconds_text(explanation.lower_bound)
        print(f"   lower bound {bound:>8}   no placement takes less, by the same costs")


def _train(cluster: tf.LocalCluster, training: Split, test: Split) -> float:
    with tf.Graph().as_default():
        model = build(len(test.images))
        with tf.Session(cluster.target("worker", 0), config=CONFIG) as session:
            session.run(model.initialize)
            with (
                Progress(N_WORKERS * STEPS_PER_WORKER, "   training") as progress,
                ThreadPoolExecutor(N_WORKERS) as threads,
            ):
                work = partial(_train_worker, cluster, training, test, progress)
                list(threads.map(work, range(N_WORKERS)))
            return _accuracy(session, model, test)


def _train_worker(
    cluster: tf.LocalCluster, training: Split, test: Split, progress: Progress, worker: int
) -> None:
    """Trains like a separate program would: builds the graph, opens a session and runs steps."""
    with tf.Graph().as_default():
        model = build(len(test.images))
        with tf.Session(cluster.target("worker", worker), config=CONFIG) as session:
            for images, labels in training.batches(BATCH, STEPS_PER_WORKER, seed=worker):
                fed = {model.images: images, model.labels: labels}
                loss, _ = session.run([model.loss, model.train], fed)
                progress.advance(f"loss {loss:.3f}")


def _look(cluster: tf.LocalCluster, test: Split, picture: Path) -> float:
    with tf.Graph().as_default():
        model = build(len(test.images))
        with tf.Session(cluster.target("worker", 1), config=CONFIG) as session:
            save_picture(session.explain(*model.step), picture)
            return _accuracy(session, model, test)


def _accuracy(session: tf.Session, model: Model, test: Split) -> float:
    return accuracy(session.run(model.predictions, {model.test_images: test.images}), test.labels)


def _reset(cluster: tf.LocalCluster) -> None:
    tf.Session.reset(cluster.target("worker", 0), [CONTAINER])
    with tf.Graph().as_default():
        model = build(1)
        with tf.Session(cluster.target("worker", 0)) as session:
            try:
                session.run(model.variables[0])
            except tf.errors.FailedPreconditionError as error:
                print(f"   {error.message.split(';')[0]}")

"""Input pipelines from a file of examples: alone, and in front of a training step."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import jflow as tf
from bench.examples import (
    BATCH,
    CAPACITY,
    MIN_AFTER_DEQUEUE,
    N_BLOCK,
    N_CLASSES,
    N_FEATURES,
    N_THREADS,
    examples,
)
from bench.timing import alternate, tell
from jflow.state.records import TFRecordWriter, encode_example

WIDTH, RATE = 512, 0.01
FEATURES = {
    "x": tf.FixedLenFeature([N_FEATURES], tf.float32),
    "label": tf.FixedLenFeature([], tf.int32),
}
Pipeline = Callable[[Any], Any]


def write(path: str) -> None:
    """The file of examples."""
    with TFRecordWriter(path) as writer:
        for x, label in examples():
            writer.write(encode_example({"x": x, "label": np.int64(label)}))


def one_by_one(files: Any) -> Any:
    """Batches; every example is read and parsed by itself."""
    _, record = tf.TFRecordReader().read(files)
    return shuffled(tf.parse_single_example(record, FEATURES))


def in_blocks(files: Any) -> Any:
    """Batches; many examples are read and parsed at once."""
    _, records = tf.TFRecordReader().read_up_to(files, N_BLOCK)
    return shuffled(tf.parse_example(records, FEATURES), enqueue_many=True)


def shuffled(example: Any, **options: bool) -> Any:
    """Batches of what several threads read."""
    return tf.train.shuffle_batch(
        [example["x"], example["label"]],
        BATCH,
        CAPACITY,
        MIN_AFTER_DEQUEUE,
        N_THREADS,
        **options,
    )


@contextmanager
def running(session: tf.Session) -> Iterator[None]:
    """The graph's queues are filled meanwhile."""
    coordinator = tf.train.Coordinator()
    threads = tf.train.start_queue_runners(session, coordinator)
    yield
    coordinator.request_stop()
    coordinator.join(threads)


def measure(name: str, path: str, pipeline: Pipeline, n: int) -> None:
    """Seconds an example, over many more than the queues hold."""
    with tf.Graph().as_default(), tf.Session() as session:
        batch = pipeline(tf.train.string_input_producer([path]))
        with running(session):
            tell(alternate({name: lambda: session.run(batch)}, n, rounds=5, items=BATCH))


def training_step(x: tf.Tensor, label: tf.Tensor) -> Any:
    """Loss and update of three layers."""
    random = np.random.default_rng(0)
    sizes = (N_FEATURES, WIDTH, WIDTH, N_CLASSES)
    weights = [
        tf.Variable(random.normal(0, 0.05, shape).astype(np.float32), name="w")
        for shape in pairwise(sizes)
    ]
    for weight in weights[:-1]:
        x = tf.nn.relu(tf.numpy.dot(x, weight))
    logits = tf.nn.log_softmax(tf.numpy.dot(x, weights[-1]))
    loss = -tf.numpy.mean(tf.numpy.sum(tf.nn.one_hot(label, N_CLASSES) * logits, axis=1))
    slopes = tf.gradients(loss, weights)
    updates = (w.assign_sub(RATE * s) for w, s in zip(weights, slopes, strict=True))
    return loss, tf.group(*updates)


def training(path: str) -> None:
    """The step with a batch of the pipeline, and the same step with one batch in memory."""
    with tf.Graph().as_default(), tf.Session() as session:
        x, label = in_blocks(tf.train.string_input_producer([path]))
        step = training_step(x, label)
        session.run(tf.global_variables_initializer())
        with running(session):
            batch = session.run([x, label])
            feeds = dict(zip((x, label), batch, strict=True))
            tell(
                alternate(
                    {
                        "MLP step fed by a pipeline": lambda: session.run(step),
                        "MLP step fed from memory": lambda: session.run(step, feeds),
                    },
                    n=300,
                )
            )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "examples.tfrecord")
        write(file)
        measure("example, one by one", file, one_by_one, n=50)
        measure("example, in blocks", file, in_blocks, n=200)
        training(file)

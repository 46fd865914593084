"""TensorFlow's input queues, for the figures of `pipelines`; run in an environment of its own."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from bench.tensorflow_servers import tf
from bench.timing import alternate, tell

N_EXAMPLES, N_FEATURES = 20_000, 84
BATCH, CAPACITY, MIN_AFTER, N_THREADS = 128, 4000, 1000, 2
N_BLOCK = 256
N_BATCHES = 200
FEATURES = {
    "x": tf.FixedLenFeature([N_FEATURES], tf.float32),
    "label": tf.FixedLenFeature([], tf.int64),
}


def write(path: str) -> None:
    """A file of examples, each of a vector and a label."""
    random = np.random.default_rng(0)
    with tf.io.TFRecordWriter(path) as writer:
        for label in random.integers(0, 10, N_EXAMPLES):
            x = tf.train.FloatList(value=random.normal(size=N_FEATURES))
            features = {
                "x": tf.train.Feature(float_list=x),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())


def one_by_one(files: Any) -> Any:
    """Batches, every example read and parsed by itself."""
    _, record = tf.TFRecordReader().read(files)
    return shuffle(tf.parse_single_example(record, FEATURES))


def in_blocks(files: Any) -> Any:
    """Batches, many examples read and parsed at once."""
    _, records = tf.TFRecordReader().read_up_to(files, N_BLOCK)
    return shuffle(tf.parse_example(records, FEATURES), enqueue_many=True)


def shuffle(example: Any, **options: bool) -> Any:
    """Shuffled batches of what is parsed by several threads."""
    return tf.train.shuffle_batch(
        [example["x"], example["label"]], BATCH, CAPACITY, MIN_AFTER, N_THREADS, **options
    )


def measure(name: str, path: str, pipeline: Any) -> None:
    """Seconds an example; the queues are filled before, so that what is in them does not count."""
    with tf.Graph().as_default(), tf.Session() as session:
        batch = pipeline(tf.train.string_input_producer([path]))
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        (seconds,) = alternate({name: lambda: session.run(batch)}, N_BATCHES, rounds=5).values()
        tell({name: seconds / BATCH})
        coordinator.request_stop()
        coordinator.join(threads)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "examples.tfrecord")
        write(file)
        measure("TensorFlow example, one by one", file, one_by_one)
        measure("TensorFlow example, in blocks", file, in_blocks)

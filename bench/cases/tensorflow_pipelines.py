"""TensorFlow's input queues, for the figures of `pipelines`; run in an environment of its own."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from bench.examples import (
    BATCH,
    CAPACITY,
    MIN_AFTER_DEQUEUE,
    N_BLOCK,
    N_FEATURES,
    N_THREADS,
    examples,
)
from bench.tensorflow_servers import tf
from bench.timing import alternate, tell

FEATURES = {
    "x": tf.FixedLenFeature([N_FEATURES], tf.float32),
    "label": tf.FixedLenFeature([], tf.int64),
}


def write(path: str) -> None:
    """The file of examples."""
    with tf.io.TFRecordWriter(path) as writer:
        for x, label in examples():
            features = {
                "x": tf.train.Feature(float_list=tf.train.FloatList(value=x)),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())


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


def measure(name: str, path: str, pipeline: Any, n: int) -> None:
    """Seconds an example, over many more than the queues hold."""
    with tf.Graph().as_default(), tf.Session() as session:
        batch = pipeline(tf.train.string_input_producer([path]))
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        tell(alternate({name: lambda: session.run(batch)}, n, rounds=5, items=BATCH))
        coordinator.request_stop()
        coordinator.join(threads)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "examples.tfrecord")
        write(file)
        measure("TensorFlow example, one by one", file, one_by_one, n=200)
        measure("TensorFlow example, in blocks", file, in_blocks, n=1000)

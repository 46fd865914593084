"""A classifier of texts whose words are sparse features of Examples, as in 2017.

The program writes its texts as TFRecords; readers on each worker read and parse them, and queues
make shuffled batches of sparse tensors. The table of word vectors is in parts on the parameter
servers. Started as mnist_supervisor.py; each server may read the files if
JFLOW_DATA_ROOTS names their directory.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from tasks import parsed_task

import jflow as tf

N_WORDS, N_TEXTS, BATCH = 1000, 600, 32


def write_texts(path: Path, seed: int) -> None:
    """Writes texts of two kinds, which use other words more often, as Examples."""
    rng = np.random.default_rng(seed)
    with tf.python_io.TFRecordWriter(path) as writer:
        for _ in range(N_TEXTS):
            kind = int(rng.integers(2))
            n = int(rng.integers(3, 20))
            common = rng.integers(0, N_WORDS, n)
            own = rng.integers(0, 50, n) + 50 * kind
            words = np.where(rng.random(n) < 0.3, own, common)
            feature = {
                "words": tf.train.Feature(int64_list=tf.train.Int64List(value=words)),
                "kind": tf.train.Feature(int64_list=tf.train.Int64List(value=[kind])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())


def batches(files: list[str], n_epochs: int | None) -> tuple[tf.SparseTensor, tf.Tensor]:
    """Shuffled batches of words and kinds."""
    names = tf.train.string_input_producer(files, num_epochs=n_epochs)
    _, serialized = tf.TFRecordReader().read(names)
    parsed = tf.parse_single_example(
        serialized,
        {"words": tf.VarLenFeature(tf.int64), "kind": tf.FixedLenFeature([], tf.int64)},
    )
    kind = tf.cast(parsed["kind"], tf.float32)
    words, kinds = tf.train.shuffle_batch([parsed["words"], kind], BATCH, 500, 200)
    return words, kinds


def main() -> None:
    """Serves as a parameter server, or trains."""
    options, cluster = parsed_task(300)
    server = tf.train.Server(cluster, job_name=options.job_name, task_index=options.task_index)
    if options.job_name == "ps":
        server.join()
    folder = Path(os.environ["JFLOW_DATA_ROOTS"])
    file = folder / f"texts-{options.task_index}.tfrecord"
    write_texts(file, options.task_index)

    worker = f"/job:worker/task:{options.task_index}"
    with tf.device(worker):
        words, kinds = batches([str(file)], None)
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=worker)):
        step = tf.train.get_or_create_global_step()
        parts = tf.fixed_size_partitioner(cluster.num_tasks("ps"))
        table = tf.get_variable(
            "table",
            [N_WORDS, 8],
            initializer=tf.random_normal_initializer(stddev=0.1),
            partitioner=parts,
        )
        vectors = tf.nn.embedding_lookup_sparse(table, words, None, combiner="mean")
        weights = tf.get_variable("weights", [8], initializer=tf.random_normal_initializer())
        logits = tf.reduce_sum(vectors * weights, axis=1)
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=kinds, logits=logits))
        train = tf.train.AdamOptimizer(0.05).minimize(loss, global_step=step)
        is_right = tf.equal(tf.greater(logits, 0.0), tf.greater(kinds, 0.5))
        accuracy = tf.reduce_mean(tf.to_float(is_right))

    hooks = [tf.train.StopAtStepHook(last_step=options.steps)]
    reached: list[float] = []
    with tf.train.MonitoredTrainingSession(
        server.target,
        options.task_index == 0,
        options.logdir,
        hooks=hooks,
        save_summaries_steps=None,
    ) as session:
        while not session.should_stop():
            reached.append(session.run([train, accuracy])[1])
    mean = float(np.mean(reached[-20:]))
    print(f"worker {options.task_index}: accuracy {mean:.3f}", flush=True)


if __name__ == "__main__":
    main()

"""Distributed training of a small network on digits with a Supervisor, as in 2016.

Each worker builds the graph with variables on the parameter server, and trains on batches of its
own without waiting for others. Start one process for each task, such as

    python mnist_supervisor.py --ps_hosts=localhost:2222 \
        --worker_hosts=localhost:2223,localhost:2224 --job_name=worker --task_index=0
"""

from __future__ import annotations

import numpy as np
from tasks import load_digits, parsed_task

import jflow as tf

BATCH = 64


def main() -> None:
    """Serves as a parameter server, or trains."""
    options, cluster = parsed_task(400)
    server = tf.train.Server(cluster, job_name=options.job_name, task_index=options.task_index)
    if options.job_name == "ps":
        server.join()
    is_chief = options.task_index == 0
    images, digits, test_images, test_digits = load_digits()

    worker = f"/job:worker/task:{options.task_index}"
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=worker)):
        step = tf.train.get_or_create_global_step()
        x = tf.placeholder(tf.float32, [None, 64], name="x")
        y = tf.placeholder(tf.int32, [None], name="y")
        keep = tf.placeholder_with_default(1.0, [], name="keep_prob")
        w1 = tf.Variable(tf.truncated_normal([64, 48], stddev=1.0 / 8), name="w1")
        b1 = tf.Variable(tf.zeros([48]), name="b1")
        w2 = tf.Variable(tf.truncated_normal([48, 10], stddev=1.0 / 7), name="w2")
        b2 = tf.Variable(tf.zeros([10]), name="b2")
        hidden = tf.nn.dropout(tf.nn.relu(tf.nn.xw_plus_b(x, w1, b1)), keep_prob=keep)
        logits = tf.nn.xw_plus_b(hidden, w2, b2)
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
        )
        train = tf.train.AdagradOptimizer(0.2).minimize(loss, global_step=step)
        is_right = tf.equal(tf.argmax(logits, 1), y)
        accuracy = tf.reduce_mean(tf.cast(is_right, tf.float32))

    supervisor = tf.train.Supervisor(
        is_chief=is_chief,
        logdir=options.logdir if is_chief else None,
        init_op=tf.global_variables_initializer(),
        summary_op=None,
        saver=tf.train.Saver(),
        global_step=step,
        save_model_secs=60 if options.logdir else 0,
        recovery_wait_secs=0.2,
    )
    rng = np.random.default_rng(options.task_index)
    with supervisor.managed_session(server.target) as session:
        number = 0
        while not supervisor.should_stop() and number < options.steps:
            rows = rng.integers(0, len(images), BATCH)
            feed = {x: images[rows], y: digits[rows], keep: 0.9}
            _, number = session.run([train, step], feed)
        reached = session.run(accuracy, {x: test_images, y: test_digits})
        print(f"worker {options.task_index}: step {number}, accuracy {reached:.3f}", flush=True)


if __name__ == "__main__":
    main()

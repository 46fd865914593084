"""In-graph replication with towers, as the Inception and CIFAR-10 programs of 2017 did it.

One client builds a tower for each worker: they share the variables, and the mean of their gradients
is applied. The others only serve. Started as mnist_supervisor.py.
"""

from __future__ import annotations

import numpy as np
from tasks import load_digits, parsed_task

import jflow as tf

BATCH = 32


def tower_loss(images: tf.Tensor, digits: tf.Tensor, scope: str) -> tf.Tensor:
    """The loss of one tower; its variables are those of the first one."""
    pictures = tf.reshape(images, [-1, 8, 8, 1])
    with tf.variable_scope("conv1"):
        kernel = tf.get_variable(
            "weights", [3, 3, 1, 16], initializer=tf.truncated_normal_initializer(stddev=0.1)
        )
        bias = tf.get_variable("biases", [16], initializer=tf.zeros_initializer())
        maps = tf.nn.conv2d(pictures, kernel, strides=[1, 1, 1, 1], padding="SAME")
        maps = tf.nn.relu(tf.nn.bias_add(maps, bias))
    pooled = tf.nn.max_pool(maps, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
    normal = tf.nn.lrn(pooled, 4, bias=1.0, alpha=0.001 / 9.0, beta=0.75)
    flat = tf.reshape(normal, [tf.shape(images)[0], 4 * 4 * 16])
    with tf.variable_scope("softmax"):
        weights = tf.get_variable(
            "weights", [4 * 4 * 16, 10], initializer=tf.truncated_normal_initializer(stddev=0.05)
        )
        bias = tf.get_variable("biases", [10], initializer=tf.zeros_initializer())
        logits = tf.matmul(flat, weights) + bias
    tf.add_to_collection("losses", 1e-4 * tf.nn.l2_loss(weights))
    entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=digits, logits=logits)
    tf.add_to_collection("losses", tf.reduce_mean(entropy, name="entropy"))
    tf.add_to_collection("logits", logits)
    return tf.add_n(tf.get_collection("losses", scope), name="total_loss")


def average_gradients(tower_grads: list) -> list:
    """The mean of the gradients of all towers, for each variable."""
    averaged = []
    for pairs in zip(*tower_grads, strict=True):
        grads = tf.concat([tf.expand_dims(grad, 0) for grad, _ in pairs], 0)
        averaged.append((tf.reduce_mean(grads, 0), pairs[0][1]))
    return averaged


def main() -> None:
    """Serves, or trains as the first worker."""
    options, cluster = parsed_task(120)
    server = tf.train.Server(cluster, job_name=options.job_name, task_index=options.task_index)
    if options.job_name == "ps" or options.task_index:
        server.join()
    images, digits, test_images, test_digits = load_digits()
    n_towers = cluster.num_tasks("worker")

    with tf.device("/job:ps/task:0"):
        step = tf.train.get_or_create_global_step()
        optimizer = tf.train.MomentumOptimizer(tf.train.cosine_decay(0.1, step, 200), 0.9)
        # Towers divide a batch, so its size is known when the graph is built.
        size = BATCH * n_towers
        x, y = tf.placeholder(tf.float32, [size, 64]), tf.placeholder(tf.int32, [size])
        parts = zip(tf.split(x, n_towers), tf.split(y, n_towers), strict=True)
    tower_grads = []
    for number, (own_images, own_digits) in enumerate(parts):
        setter = tf.train.replica_device_setter(
            cluster=cluster, worker_device=f"/job:worker/task:{number}"
        )
        with (
            tf.device(setter),
            tf.variable_scope("net", reuse=number > 0),
            tf.name_scope(f"tower_{number}") as scope,
        ):
            loss = tower_loss(own_images, own_digits, scope)
            tower_grads.append(optimizer.compute_gradients(loss))
    apply = optimizer.apply_gradients(average_gradients(tower_grads), global_step=step)
    averages = tf.train.ExponentialMovingAverage(0.99, step)
    with tf.control_dependencies([apply]):
        train = averages.apply(tf.trainable_variables())
    logits = tf.concat(tf.get_collection("logits"), 0)
    accuracy = tf.reduce_mean(tf.to_float(tf.equal(tf.argmax(logits, 1), y)))

    rng = np.random.default_rng(0)
    with tf.Session(server.target) as session:
        session.run(tf.global_variables_initializer())
        for _ in range(options.steps):
            rows = rng.integers(0, len(images), size)
            session.run(train, {x: images[rows], y: digits[rows]})
        reached = np.mean(
            [
                session.run(accuracy, {x: test_images[i : i + size], y: test_digits[i : i + size]})
                for i in range(0, len(test_images) - size + 1, size)
            ]
        )
    print(f"worker 0: accuracy {reached:.3f}", flush=True)


if __name__ == "__main__":
    main()

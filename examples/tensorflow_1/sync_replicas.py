"""Between-graph replication with synchronous updates and moving averages, as in 2017.

An update is the mean of the gradients of all workers. The chief keeps moving averages of the
weights, with which the test is better than with the last weights. Started as mnist_supervisor.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tasks import load_digits, parsed_task

import jflow as tf

BATCH = 32


def main() -> None:
    """Serves as a parameter server, or trains."""
    options, cluster = parsed_task(200)
    server = tf.train.Server(cluster, job_name=options.job_name, task_index=options.task_index)
    if options.job_name == "ps":
        server.join()
    is_chief = options.task_index == 0
    n_workers = cluster.num_tasks("worker")
    images, digits, test_images, test_digits = load_digits()

    worker = f"/job:worker/task:{options.task_index}"
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=worker)):
        step = tf.train.get_or_create_global_step()
        x, y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int32, [None])

        def network(weights: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
            return tf.matmul(x, weights) + bias

        with tf.variable_scope("softmax"):
            weights = tf.get_variable("weights", [64, 10], initializer=tf.zeros_initializer())
            bias = tf.get_variable("bias", [10], initializer=tf.zeros_initializer())
        logits = network(weights, bias)
        loss = tf.reduce_mean(
            tf.nn.softmax_cross_entropy_with_logits(labels=tf.one_hot(y, 10), logits=logits)
        )
        rate = tf.train.exponential_decay(0.5, step, 50, 0.9, staircase=True)
        averages = tf.train.ExponentialMovingAverage(0.95, num_updates=step)
        optimizer = tf.train.SyncReplicasOptimizer(
            tf.train.MomentumOptimizer(rate, 0.5),
            replicas_to_aggregate=n_workers,
            total_num_replicas=n_workers,
            variable_averages=averages,
            variables_to_average=tf.trainable_variables(),
        )
        train = optimizer.minimize(loss, global_step=step)
        averaged = network(averages.average(weights), averages.average(bias))
        is_right = tf.equal(tf.argmax(averaged, 1), y)
        accuracy = tf.reduce_mean(tf.cast(is_right, tf.float32))

    hooks = [
        optimizer.make_session_run_hook(is_chief),
        tf.train.StopAtStepHook(last_step=options.steps),
    ]

    def measured(step_context: Any) -> Any:
        """The accuracy with the averaged variables; the hooks do not see this step."""
        return step_context.session.run(accuracy, {x: test_images, y: test_digits})

    rng = np.random.default_rng(options.task_index)
    reached = 0.0
    with tf.train.MonitoredTrainingSession(
        server.target, is_chief, options.logdir, hooks=hooks, save_summaries_steps=None
    ) as session:
        while not session.should_stop():
            rows = rng.integers(0, len(images), BATCH)
            _, number = session.run([train, step], {x: images[rows], y: digits[rows]})
            if number % 50 == 0 or number >= options.steps - 1:
                reached = session.run_step_fn(measured)
    print(f"worker {options.task_index}: accuracy {reached:.3f}", flush=True)


if __name__ == "__main__":
    main()

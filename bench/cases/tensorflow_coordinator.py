"""TensorFlow's coordinator, for the same figures as `coordinator`; in an environment of its own.

`python -m bench.cases.tensorflow_coordinator JOB INDEX CLUSTER` is one task of its cluster.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf

from bench.timing import tell

N_TINY, N_STEPS, N_FETCHED = 1000, 200, 200


def start_cluster(stack: ExitStack, n_ps: int = 1, n_workers: int = 2) -> tf.train.ClusterSpec:
    """Parameter servers and workers, in processes of their own."""
    with ExitStack() as sockets:
        jobs = {
            job: [sockets.enter_context(socket.create_server(("localhost", 0))) for _ in range(n)]
            for job, n in (("worker", n_workers), ("ps", n_ps))
        }
        spec = {
            job: [f"localhost:{one.getsockname()[1]}" for one in held] for job, held in jobs.items()
        }
    for job, addresses in spec.items():
        for index in range(len(addresses)):
            arguments = ["-m", "bench.cases.tensorflow_coordinator", job, str(index)]
            process = subprocess.Popen([sys.executable, *arguments, json.dumps(spec)])
            stack.callback(process.wait)
            stack.callback(process.kill)
    return tf.train.ClusterSpec(spec)


def seconds_each(coordinator: Any, fn: Any, args: tuple[Any, ...], n: int) -> float:
    """Seconds a closure, of many that are scheduled at once."""
    for _ in range(n // 4):
        coordinator.schedule(fn, args=args)
    coordinator.join()
    begun = time.perf_counter()
    for _ in range(n):
        coordinator.schedule(fn, args=args)
    coordinator.join()
    return (time.perf_counter() - begun) / n


def main() -> None:
    rng = np.random.default_rng(0)
    batch = rng.random((64, 784)).astype(np.float32), rng.integers(0, 10, 64)
    with ExitStack() as stack:
        spec = start_cluster(stack)
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")
        strategy = tf.distribute.ParameterServerStrategy(resolver)
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        with strategy.scope():
            counter = tf.Variable(0.0)
            hidden = tf.Variable(tf.zeros([784, 256]))
            out = tf.Variable(tf.zeros([256, 10]))

        @tf.function
        def tiny() -> None:
            counter.assign_add(1.0)

        @tf.function
        def step(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                logits = tf.nn.relu(x @ hidden) @ out
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
                loss = tf.reduce_mean(losses)
            d_hidden, d_out = tape.gradient(loss, [hidden, out])
            hidden.assign_sub(0.1 * d_hidden)
            out.assign_sub(0.1 * d_out)
            return loss

        figures = {
            "TensorFlow tiny closure": seconds_each(coordinator, tiny, (), N_TINY),
            "TensorFlow MLP closure": seconds_each(coordinator, step, batch, N_STEPS),
        }
        begun = time.perf_counter()
        for _ in range(N_FETCHED):
            coordinator.fetch(coordinator.schedule(tiny))
        figures["TensorFlow schedule and fetch"] = (time.perf_counter() - begun) / N_FETCHED
        tell(figures)
        sys.stdout.flush()
    os._exit(0)  # its threads would wait for the cluster


if __name__ == "__main__":
    if len(sys.argv) > 1:
        spec = json.loads(sys.argv[3])
        task = {"job_name": sys.argv[1], "task_index": int(sys.argv[2])}
        tf.distribute.Server(tf.train.ClusterSpec(spec), protocol="grpc", **task).join()
    main()

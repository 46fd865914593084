"""What people would do with Ray, Dask, TensorFlow or `jax.distributed` instead, done with jflow."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jflow as tf
from bench.cases.parameter_servers import PS, WORKERS
from bench.cases.remote_functions import training
from bench.cases.starting import Up, pids, started
from bench.peers import (
    CALL,
    GET,
    MATRIX,
    N_BIG,
    N_KILLS,
    N_SHARED,
    N_TASKS,
    PUT,
    RESTART,
    STEP,
    SYNCHRONOUS,
    TASKS,
    UPDATE,
    loss,
)
from bench.perceptron import BASE, RATE
from bench.timing import alternate, tell
from jflow.cli.watcher import Watcher

Actions = dict[str, Callable[[], Any]]


def state() -> tuple[Actions, Actions]:
    """Calls on what lives in other processes: short ones, and those of 100 MB."""
    with tf.device(WORKERS[0]):
        count = tf.Variable(0.0, name="count")
        big = tf.Variable(lambda: jnp.ones(N_BIG), name="big")
        sink = tf.Variable(lambda: jnp.zeros(N_BIG), name="sink")
    with tf.device(PS):
        shared = tf.Variable(lambda: jnp.zeros(N_SHARED), name="shared")

    @tf.function
    def call() -> Any:
        return count.assign_add(1.0)

    @tf.function
    def update(change: Any) -> None:
        shared.assign_add(change)

    @tf.function
    def get() -> Any:
        return big.value()

    @tf.function
    def put(value: Any) -> None:
        sink.assign(value)

    change, value = np.ones(N_SHARED, np.float32), np.ones(N_BIG, np.float32)
    short = {
        CALL: call,
        UPDATE: lambda: update(change),
        STEP: training(BASE),
        SYNCHRONOUS: synchronous(),
    }
    return short, {PUT: lambda: put(value), GET: lambda: np.asarray(get())}


def synchronous() -> Callable[[], Any]:
    """A step of two workers, each with half of the images, and one update of the parameters."""
    with tf.device(PS):
        weights = [tf.Variable(w, name=f"w{w.size}_of_two") for w in BASE.weights()]

    @tf.function
    def train(halves: list[Any]) -> Any:
        values, losses, slopes = [w.value() for w in weights], [], []
        for worker, (x, y) in zip(WORKERS, halves, strict=True):
            with tf.device(worker):
                value, slope = jax.value_and_grad(loss)(values, x, y)
            losses.append(value)
            slopes.append(slope)
        for weight, *both in zip(weights, *slopes, strict=True):
            weight.assign_sub(RATE * sum(both) / len(both))
        return losses

    x, y = BASE.data()
    halves = [(x[::2], y[::2]), (x[1::2], y[1::2])]
    return lambda: train(halves)


def tasks(coordinator: tf.ClusterCoordinator) -> float:
    """Seconds a task, of many whose results are fetched."""

    @tf.function
    def add_one(x: Any) -> Any:
        return x + 1

    def run(n: int) -> None:
        for value in [coordinator.schedule(add_one, args=(np.float32(i),)) for i in range(n)]:
            value.fetch()

    run(N_TASKS // 10)
    begun = time.perf_counter()
    run(N_TASKS)
    return (time.perf_counter() - begun) / N_TASKS


def restart(up: Up, coordinator: tf.ClusterCoordinator) -> float:
    """Seconds from the death of a worker until a call on it succeeds that was made right then."""
    product = tf.function(lambda x: x @ x)

    def call() -> None:
        coordinator.schedule(product, (MATRIX,), worker=1).fetch()

    taken = []
    with Watcher([up.targets["/job:worker/task:0"]], 60.0) as watcher:
        for _ in range(N_KILLS):
            call()
            pid = pids(watcher)["/job:worker/task:1"]
            time.sleep(1.5)  # a task is started again at most once a second
            begun = time.perf_counter()
            os.kill(pid, signal.SIGKILL)
            call()
            taken.append(time.perf_counter() - begun)
            up.next_ready()
    return statistics.median(taken)


def main() -> None:
    """Measures on a cluster of one parameter server and two workers, as `jflow up` starts it."""
    with started() as up:
        target = up.targets["/job:worker/task:0"]
        with tf.connect(target):
            short, large = state()
            tell(alternate(short, n=60))
            tell(alternate(large, n=2))
        addresses = {task: one.removeprefix("grpc://") for task, one in up.targets.items()}
        spec = {
            "ps": [addresses["/job:ps/task:0"]],
            "worker": [addresses[worker] for worker in WORKERS],
        }
        strategy = tf.distribute.ParameterServerStrategy(tf.train.ClusterSpec(spec))
        with closing(strategy), tf.ClusterCoordinator(strategy) as coordinator:
            tell({TASKS: tasks(coordinator)})
            tell({RESTART: restart(up, coordinator)})


if __name__ == "__main__":
    main()

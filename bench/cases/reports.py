"""Steps of about 5 ms, alone and while a performance report traces them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax.numpy as jnp
import numpy as np

import jflow as tf
from bench.timing import ROUNDS, seconds, tell

N = 60
SIZE = 256
_WARM_S = 0.3
"""Until a report has asked for what it explains, in seconds."""


def main() -> None:
    """Measures a step of this process, of one task, and of two tasks that send 256 kB each way."""
    x = np.ones((SIZE, SIZE), np.float32)
    with tf.connect():
        local = one_device(weights(), 34)
        _measure("in this process", lambda: float(local(x)))
    with tf.LocalCluster(ps=1, workers=1) as cluster, tf.connect(cluster.target("ps", 0)):
        with tf.device("/job:ps"):
            there = weights()
        remote, split = one_device(there, 26), two_tasks(there, 17)
        _measure("of one task", lambda: float(remote(x)))
        _measure("of two tasks", lambda: float(split(x)))


def weights() -> tf.Variable:
    return tf.Variable(np.full((SIZE, SIZE), 1e-3, np.float32), name="weights")


def one_device(variable: tf.Variable, depth: int) -> Callable[[Any], Any]:
    """A step whose only program reads the weights and updates them."""

    @tf.function
    def step(x: Any) -> Any:
        value = _deep(x, variable.value(), depth)
        variable.assign_sub(1e-9 * value * jnp.ones((SIZE, SIZE)))
        return value

    return step


def two_tasks(variable: tf.Variable, depth: int) -> Callable[[Any], Any]:
    """A step whose worker gets the weights and sends what the parameter server updates them by."""

    @tf.function
    def step(x: Any) -> Any:
        with tf.device("/job:worker"):
            read = variable.value()
            value = _deep(x, read, depth)
            slope = 1e-9 * value * read
        variable.assign_sub(slope)
        return value

    return step


def _deep(x: Any, weight: Any, depth: int) -> Any:
    for _ in range(depth):
        x = jnp.tanh(x @ weight)
    return jnp.sum(x)


def _measure(where: str, step: Callable[[], Any]) -> None:
    taken: dict[str, list[float]] = {"alone": [], "in a report": []}
    seconds(step, N)
    for _ in range(ROUNDS):
        for how, times in taken.items():
            block: AbstractContextManager[Any] = (
                nullcontext() if how == "alone" else tf.performance_report()
            )
            with block:
                step()
                time.sleep(_WARM_S)
                times.append(seconds(step, N))
    tell({f"5 ms step {where}, {how}": statistics.median(times) for how, times in taken.items()})


if __name__ == "__main__":
    main()

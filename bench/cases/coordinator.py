"""A coordinator of two workers and a parameter server: closures in a row, one by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jflow as tf
from bench.cases.remote import raw_channel
from bench.timing import seconds, tell

N_TINY, N_STEPS, N_FETCHED = 2000, 300, 200
N_STEP_BYTES = 4 * (784 * 256 + 256 * 10)
"""What a step of the perceptron reads of the parameter server, and sends it."""


def seconds_each(coordinator: Any, fn: Any, args: tuple[Any, ...], n: int, **options: Any) -> float:
    """Seconds a closure, of many that are scheduled at once."""
    for _ in range(n // 4):  # compiles, and finds out how long a closure takes
        coordinator.schedule(fn, args=args, **options)
    coordinator.join()
    begun = time.perf_counter()
    for _ in range(n):
        coordinator.schedule(fn, args=args, **options)
    coordinator.join()
    return (time.perf_counter() - begun) / n


def closures(strategy: Any) -> tuple[Callable[[], None], Callable[..., Any]]:
    """A closure that counts, and a step of a perceptron on a batch of 64 images."""
    with strategy.scope():
        counter = tf.Variable(0.0, name="counter")
        hidden = tf.Variable(np.zeros((784, 256), np.float32), name="hidden")
        out = tf.Variable(np.zeros((256, 10), np.float32), name="out")

    @tf.function
    def tiny() -> None:
        counter.assign_add(1.0)

    def loss(weights: Any, x: Any, y: Any) -> Any:
        logits = jax.nn.relu(x @ weights[0]) @ weights[1]
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1)
        return -picked.mean()

    @tf.function
    def step(x: Any, y: Any) -> Any:
        value, (d_hidden, d_out) = jax.value_and_grad(loss)((hidden.value(), out.value()), x, y)
        hidden.assign_sub(0.1 * d_hidden)
        out.assign_sub(0.1 * d_out)
        return value

    return tiny, step


def raw_echoes() -> dict[str, float]:
    """What `grpc.aio` needs to send a message to another process and back."""
    with raw_channel() as channel:
        outgoing: SimpleQueue[bytes] = SimpleQueue()
        chat = channel.stream_stream("/raw/chat")(iter(outgoing.get, b"end"))

        def talk(n_bytes: int) -> None:
            outgoing.put(bytes(n_bytes))
            next(chat)

        talk(100)
        figures = {
            "raw stream echo": seconds(lambda: talk(100), N_FETCHED),
            "raw stream echo of 0.8 MB": seconds(lambda: talk(N_STEP_BYTES), N_STEPS),
        }
        outgoing.put(b"end")
    return figures


def main() -> None:
    rng = np.random.default_rng(0)
    batch = rng.random((64, 784), np.float32), rng.integers(0, 10, 64)
    with tf.LocalCluster(ps=1, workers=2) as cluster:
        strategy = tf.distribute.ParameterServerStrategy(cluster.cluster_spec)
        with tf.ClusterCoordinator(strategy) as coordinator:
            tiny, step = closures(strategy)
            exact = {"effects": "exactly_once"}
            figures = {
                "tiny closure": seconds_each(coordinator, tiny, (), N_TINY),
                "tiny closure, exactly once": seconds_each(coordinator, tiny, (), N_TINY, **exact),
                "MLP closure": seconds_each(coordinator, step, batch, N_STEPS),
            }
            begun = time.perf_counter()
            for _ in range(N_FETCHED):
                coordinator.fetch(coordinator.schedule(tiny))
            figures["schedule and fetch"] = (time.perf_counter() - begun) / N_FETCHED
        strategy.close()
    tell(figures | raw_echoes())


if __name__ == "__main__":
    main()

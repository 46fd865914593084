"""The same steps by a session and by a function of a connection, in turns of one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jflow as tf
from bench.cases.parameter_servers import PS, WORKERS
from bench.cases.parameter_servers import step as session_step
from bench.perceptron import BASE, RATE, Size
from bench.timing import alternate, seconds, tell

SIZE = 100_000_000 // 4
"""Items of float32 in 100 MB."""

N_WARM = 20
"""Fetches until the segment of a connection is there, which a server makes beside its answers."""

Steps = dict[str, Callable[[], Any]]


def by_session(session: tf.Session, size: Size) -> tuple[Steps, Steps]:
    """Short steps of a session, and one that fetches 100 MB."""
    expression = tf.constant(1.0) * 3
    with tf.device(WORKERS[0]):
        x = tf.placeholder(tf.float32, ())
        fed = session.make_callable(x * 3 + 1, [x])
        big = tf.Variable(lambda: tf.numpy.ones(SIZE), name="big")
    session.run(big.initializer)
    one = np.float32(1.0)
    short = {
        "constant by a session": lambda: session.run(expression),
        "fed scalar by a session": lambda: fed(one),
        "MLP step of a ps by a session": session_step(session, size),
    }
    return short, {"fetch of 100 MB by a session": lambda: session.run(big)}


def by_function(size: Size) -> tuple[Steps, Steps]:
    """The same by functions of the current connection."""

    @tf.function
    def constant() -> Any:
        return jnp.float32(1.0) * 3

    @tf.function
    def fed(x: Any) -> Any:
        with tf.device(WORKERS[0]):
            return x * 3 + 1

    with tf.device(WORKERS[0]):
        big = tf.Variable(lambda: jnp.ones(SIZE), name="big_of_functions")

    @tf.function
    def fetch() -> Any:
        return big.value()

    one = np.float32(1.0)
    short = {
        "constant by a function": constant,
        "fed scalar by a function": lambda: fed(one),
        "MLP step of a ps by a function": training(size),
    }
    return short, {"fetch of 100 MB by a function": fetch}


def training(size: Size) -> Callable[[], Any]:
    """A step whose gradient is taken on a worker and whose parameters are on a parameter server."""
    with tf.device(PS):
        weights = [tf.Variable(w, name=f"w{w.size}_of_functions") for w in size.weights()]

    def loss(values: list[Any], x: Any, y: Any) -> Any:
        logits = jax.nn.relu(x @ values[0]) @ values[1]
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * y, -1))

    @tf.function
    def train(x: Any, y: Any) -> Any:
        with tf.device(WORKERS[0]):
            value, slopes = jax.value_and_grad(loss)([w.value() for w in weights], x, y)
        with tf.device(PS):
            for weight, slope in zip(weights, slopes, strict=True):
                weight.assign_sub(RATE * slope)
        return value

    batch = size.data()
    return lambda: train(*batch)


def main() -> None:
    """Measures on a cluster of one parameter server and one worker."""
    with tf.LocalCluster(ps=1, workers=1) as cluster:
        target = cluster.target("worker", 0)
        with tf.Session(target) as session:
            short, large = by_session(session, BASE)
            with tf.connect(target):
                short_too, large_too = by_function(BASE)
                tell(alternate(short | short_too, n=100))
                for fetch in (large | large_too).values():
                    seconds(fetch, N_WARM)
                tell(alternate(large | large_too, n=1, rounds=9))


if __name__ == "__main__":
    main()

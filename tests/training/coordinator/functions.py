"""Functions that tests schedule on workers, and what they use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

import jflow as tf
from jflow.training.coordinator import ClusterCoordinator


@tf.function
def double(x: Any) -> Any:
    return 2 * x


@tf.function
def not_a_number(x: Any) -> Any:
    return jnp.log(x)


def a_queue(coordinator: ClusterCoordinator, name: str) -> tf.FIFOQueue:
    """An empty queue on the parameter server, which closures can wait for."""
    with coordinator.strategy.scope(), tf.device("/job:ps/task:0"):
        return tf.FIFOQueue(100, [tf.float32], [[]], shared_name=name)


def a_failure(coordinator: ClusterCoordinator) -> Callable[[], Any]:
    """A function that fails: it takes an element of a queue that is closed and empty."""
    queue = a_queue(coordinator, "closed")
    queue.close()

    @tf.function
    def fail() -> Any:
        return queue.dequeue()

    return fail


def a_counter(coordinator: ClusterCoordinator) -> tuple[tf.Variable, Callable[[], Any]]:
    with coordinator.strategy.scope():
        counter = tf.Variable(0.0, name="counter")

    @tf.function
    def count() -> None:
        counter.assign_add(1.0)

    return counter, count

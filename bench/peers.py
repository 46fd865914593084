"""What is measured beside Ray, Dask, TensorFlow and `jax.distributed`.

Each peer's side imports this in an environment of its own, which has no jflow and maybe no JAX.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.perceptron import RATE

CALL, UPDATE, STEP = "actor call", "update of 1 MB of shared state", "parameter server's step"
PUT, GET, TASKS = "put 100 MB", "get 100 MB", "small task, of 10,000"
RESTART, SYNCHRONOUS = "killed worker, until a call succeeds", "synchronous step of two workers"

N_TASKS, N_KILLS = 10_000, 5
N_BIG, N_SHARED = 25_000_000, 250_000
"""Floats in 100 MB, and in 1 MB."""

MATRIX = np.full((100, 100), 0.01, np.float32)
"""What a worker multiplies that was killed before."""


class State:
    """What lives in another process."""

    def __init__(self) -> None:
        self.count = 0.0
        self.shared = np.zeros(N_SHARED, np.float32)
        self.big = np.ones(N_BIG, np.float32)
        self.sink = np.zeros(N_BIG, np.float32)

    def call(self) -> float:
        self.count += 1
        return self.count

    def update(self, change: np.ndarray) -> None:
        self.shared += change

    def get(self) -> np.ndarray:
        return self.big

    def put(self, value: np.ndarray) -> None:
        self.sink = value


class ParameterServer:
    """Keeps the parameters."""

    def __init__(self, weights: list[np.ndarray]) -> None:
        self.weights = [weight.copy() for weight in weights]

    def values(self) -> list[np.ndarray]:
        return self.weights

    def update(self, slopes: list[np.ndarray]) -> None:
        for weight, slope in zip(self.weights, slopes, strict=True):
            np.subtract(weight, RATE * slope, out=weight)


def loss(weights: list[Any], x: Any, y: Any) -> Any:
    """The cross entropy of the perceptron's answers."""
    import jax  # noqa: PLC0415 - Ray's and Dask's own processes import it where they compute
    import jax.numpy as jnp  # noqa: PLC0415

    logits = jax.nn.relu(x @ weights[0]) @ weights[1]
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * y, -1))


def gradient() -> Callable[..., Any]:
    """A compiled function of parameters, images and labels: the loss and its derivatives."""
    import jax  # noqa: PLC0415

    return jax.jit(jax.value_and_grad(loss))


def free_ports(n: int) -> list[str]:
    """Ports that are free now."""
    sockets = [socket.socket() for _ in range(n)]
    for one in sockets:
        one.bind(("localhost", 0))
    ports = [str(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports

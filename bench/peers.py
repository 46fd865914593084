"""What is measured beside Ray, Dask, TensorFlow and `jax.distributed`.

Each peer's side imports this in an environment of its own, which has no jflow and maybe no JAX.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import numpy as np

CALL, UPDATE, STEP = "actor call", "update of 1 MB of shared state", "parameter server's step"
PUT, GET, TASKS = "put 100 MB", "get 100 MB", "small task, of 10,000"
RESTART, SYNCHRONOUS = "killed worker, until a call succeeds", "synchronous step of two workers"

N_TASKS, N_KILLS = 10_000, 5
N_BIG, N_SHARED = 25_000_000, 250_000
"""Floats in 100 MB, and in 1 MB."""

MATRIX = np.full((100, 100), 0.01, np.float32)
"""What a worker multiplies that was killed before."""


def gradient() -> Callable[..., Any]:
    """A compiled function of parameters, images and labels: the loss and its derivatives."""
    import jax  # noqa: PLC0415 - Ray's and Dask's own processes import it where they compute
    import jax.numpy as jnp  # noqa: PLC0415

    def loss(weights: list[Any], x: Any, y: Any) -> Any:
        logits = jax.nn.relu(x @ weights[0]) @ weights[1]
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * y, -1))

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

"""A step on a GPU and 100 MB there and back, beside plain JAX."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jflow as tf
from bench.cases.local import mlp_step, plain_mlp
from bench.echo_server import N_BYTES
from bench.timing import alternate, tell


def transfers(stack: ExitStack) -> dict[str, Callable[[], Any]]:
    """100 MB fed into a variable on the GPU and fetched from one, and what JAX alone takes."""
    stack.enter_context(tf.Graph().as_default())
    big = np.ones(N_BYTES // 4, np.float32)
    x = tf.placeholder(tf.float32, big.shape)
    put = tf.Variable(lambda: tf.numpy.zeros(big.shape), name="put").assign(x).op
    kept = tf.Variable(lambda: tf.numpy.ones(big.shape), name="kept")
    session = stack.enter_context(tf.Session())
    session.run(tf.global_variables_initializer())
    # An array that was read once keeps its copy on the host, so each read needs a new one.
    copied, there = jax.jit(jnp.copy), jax.device_put(big)
    return {
        "feed 100 MB to a GPU": lambda: session.run(put, {x: big}),
        "jax.device_put of 100 MB": lambda: jax.device_put(big).block_until_ready(),
        "fetch 100 MB from a GPU": lambda: session.run(kept),
        "np.asarray of 100 MB on a GPU": lambda: np.asarray(copied(there)),
    }


def main() -> None:
    """The first device of JAX is the GPU, and a session's too."""
    with ExitStack() as stack:
        session = stack.enter_context(tf.Session())
        first = session.list_devices()[0]
        assert first.device_type == "GPU", f"the first device is {first.name}"
        calls = {"MLP step on a GPU": mlp_step(session), "jax.jit MLP step on a GPU": plain_mlp()}
        tell(alternate(calls, n=100))
        tell(alternate(transfers(stack), n=1))


if __name__ == "__main__":
    main()

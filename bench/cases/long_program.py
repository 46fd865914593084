"""A program of ten thousand mixed equations: one segment after another, against one for all.

XLA takes minutes to compile the latter; with BENCH_ALONE set it is left out.
"""

from __future__ import annotations

import os

import jax
import jax.numpy as jnp
import numpy as np

import jflow as tf
from bench.timing import alternate, seconds, tell

N_EQUATIONS = 10_000
SIZE = 32


def program(x: jax.Array) -> jax.Array:
    """Arithmetic, functions, products and reductions of matrices, each of some made before."""
    random = np.random.default_rng(0)
    binary = (jax.lax.add, jax.lax.sub, jax.lax.mul, jax.lax.max)
    unary = (jax.lax.sin, jax.lax.tanh, jax.lax.cos, jax.lax.abs)
    values = [x]
    for kind in random.integers(0, 10, N_EQUATIONS):
        a, b = (values[-1 - int(i)] for i in random.integers(0, min(len(values), 40), 2))
        if kind < 5:
            values.append(binary[int(kind) % 4](a, b))
        elif kind < 9:
            values.append(unary[int(kind) % 4](a))
        else:
            values.append(jax.lax.dot(a, b) if len(values) % 2 else jnp.full_like(a, 0.1))
    return sum(jnp.tanh(value) for value in values[-40:])


def main() -> None:
    """First runs, which compile, and later ones."""
    n = len(jax.make_jaxpr(program)(jnp.zeros((SIZE, SIZE))).eqns)
    assert 0.9 * N_EQUATIONS <= n <= 1.2 * N_EQUATIONS, n
    x = jax.random.normal(jax.random.key(0), (SIZE, SIZE)) / SIZE
    traced, jitted = tf.function(program), jax.jit(program)

    def run() -> None:
        traced(x).block_until_ready()

    def run_jitted() -> None:
        jitted(x).block_until_ready()

    tell({"first run of 10000 equations": seconds(run)})
    if os.environ.get("BENCH_ALONE"):
        tell(alternate({"run of 10000 equations": run}, n=5))
        return
    tell({"jax.jit's first run of 10000 equations": seconds(run_jitted)})
    tell(
        alternate(
            {"run of 10000 equations": run, "jax.jit's run of 10000 equations": run_jitted}, n=5
        )
    )


if __name__ == "__main__":
    main()

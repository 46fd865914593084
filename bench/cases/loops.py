"""Loops over two tasks, a core each, beside the same functions in one process on one core.

What is timed returns one number, so that nothing large is fetched; the weights are variables on the
device of their stage.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jflow as tf
from bench import memory
from bench.timing import alternate, tell
from jflow.launch.resources import pinned

WIDTH, BATCH, LAYERS = 512, 128, 8
"""Of the perceptron; the layers of each stage."""
N_STAGES, N_MICROBATCHES = 2, 8
N_ITERATIONS, N_SMALL = 1000, 100_000

Weights = list[list[Any]]


def on(stage: int) -> Any:
    """A block for the device of a stage; plain JAX ignores it."""
    return tf.device(f"/job:worker/task:{stage}")


def model(weights: Weights, x: Any) -> Any:
    """Layers in stages."""
    for stage, layers in enumerate(weights):
        with on(stage):
            for weight in layers:
                x = jnp.tanh(x @ weight)
    return x


def loss(weights: Weights, x: Any) -> Any:
    """A mean on the last stage."""
    y = model(weights, x)
    with on(N_STAGES - 1):
        return jnp.mean(y * y)


def forward(weights: Weights, xs: Any) -> Any:
    """The sum of the losses of all microbatches, by a scan."""

    def body(total: Any, x: Any) -> Any:
        value = loss(weights, x)
        with on(N_STAGES - 1):
            return total + value, None

    return jax.lax.scan(body, jnp.float32(0), xs)[0]


def unrolled(weights: Weights, xs: Any) -> Any:
    """The same by a loop of Python."""
    total = jnp.float32(0)
    for x in xs:
        value = loss(weights, x)
        with on(N_STAGES - 1):
            total = total + value
    return total


def accumulated(weights: Weights, xs: Any) -> Any:
    """The gradient, by a scan of gradients."""

    def body(total: Any, x: Any) -> Any:
        return jax.tree.map(jnp.add, total, jax.grad(loss)(weights, x)), None

    return jax.lax.scan(body, jax.tree.map(jnp.zeros_like, weights), xs)[0]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "forward": forward,
    "grad(scan)": jax.grad(forward),
    "scan(grad)": accumulated,
    "forward, unrolled": unrolled,
    "grad, unrolled": jax.grad(unrolled),
}


def number(function: Callable[..., Any], weights: Weights, xs: Any) -> Any:
    """A sum over the results, added up stage by stage."""
    results = function(weights, xs)
    if not isinstance(results, list):
        return results
    sums = []
    for stage, layers in enumerate(results):
        with on(stage):
            sums.append(sum(jnp.sum(layer) for layer in layers))
    return sum(sums)


def values(n: int = N_MICROBATCHES) -> tuple[list[list[np.ndarray[Any, Any]]], Any]:
    """Weights and microbatches."""
    rng = np.random.default_rng(0)
    scale = WIDTH**-0.5
    weights = [
        [(rng.normal(size=(WIDTH, WIDTH)) * scale).astype("f") for _ in range(LAYERS)]
        for _ in range(N_STAGES)
    ]
    return weights, rng.normal(size=(n, BATCH, WIDTH)).astype("f")


def on_one_core() -> None:
    """The times of `jax.jit`, in this process."""
    weights, xs = jax.device_put(values())
    compiled = {name: jax.jit(lambda w, x, f=f: number(f, w, x)) for name, f in FUNCTIONS.items()}
    taken = {name: float(run(weights, xs)) for name, run in compiled.items()}
    calls = {name: partial(_waited, run, weights, xs) for name, run in compiled.items()}
    print(json.dumps([taken, alternate(calls, n=1)]))


def _waited(run: Callable[..., Any], *args: Any) -> None:
    run(*args).block_until_ready()


def pipelines(cluster: tf.LocalCluster) -> None:
    """The functions on two tasks, and as `jax.jit` on one core."""
    with pinned(0):
        alone = subprocess.run(
            [sys.executable, "-m", "bench.cases.loops", "alone"],
            capture_output=True,
            text=True,
            check=True,
        )
    wanted, of_jit = json.loads(alone.stdout)
    tell({f"jax.jit {name}, one core": taken for name, taken in of_jit.items()})
    weights, xs = values()
    variables = []
    for stage, layers in enumerate(weights):
        with on(stage):
            variables.append([tf.Variable(layer) for layer in layers])
    with on(0):
        batches = tf.Variable(xs)

    def placed(function: Callable[..., Any], m: int) -> Callable[[], Any]:
        @tf.function
        def step() -> Any:
            read = [[variable.value() for variable in layers] for layers in variables]
            return number(function, read, batches.value()[:m])

        return lambda: float(step())

    steps = {name: placed(function, N_MICROBATCHES) for name, function in FUNCTIONS.items()}
    for name, step in steps.items():
        np.testing.assert_allclose(step(), wanted[name], 1e-3)
    times = alternate(steps, n=1)
    tell({f"{name}, two tasks": taken for name, taken in times.items()})


def many(cluster: tf.LocalCluster) -> None:
    """How the first call, and memory, grow with the number of microbatches."""
    weights, _ = values()
    variables = []
    for stage, layers in enumerate(weights):
        with on(stage):
            variables.append([tf.Variable(layer) for layer in layers])
    peaks = {}
    for m in (16, 128):
        # Made where it is used, so that it is not sent.
        @tf.function
        def step(m: int = m) -> Any:
            read = [[variable.value() for variable in layers] for layers in variables]
            with on(0):
                seeds = jnp.arange(m, dtype=jnp.float32)

            def body(total: Any, seed: Any) -> Any:
                with on(0):
                    x = jnp.full((BATCH, WIDTH), 0.01) * seed
                return jax.tree.map(jnp.add, total, jax.grad(loss)(read, x)), None

            zeros = jax.tree.map(jnp.zeros_like, read)
            return number(lambda *_: jax.lax.scan(body, zeros, seeds)[0], read, None)

        begun = time.perf_counter()
        step()
        first = time.perf_counter() - begun
        begun = time.perf_counter()
        step()
        again = time.perf_counter() - begun
        tell({f"making a scan(grad) of {m} microbatches": first - again})
        pids = [cluster.pid("worker", i) for i in range(N_STAGES)]
        for pid in pids:
            memory.begin_peak(pid)
        before = [memory.resident(pid) for pid in pids]
        step()
        peaks[m] = max(memory.peak(pid) - kept for pid, kept in zip(pids, before, strict=True))
    tell({f"memory of a scan(grad) of {m} microbatches": float(n) for m, n in peaks.items()})


def crossings() -> None:
    """Loops that compute next to nothing."""

    def there_and_back(x: Any) -> Any:
        def body(carry: Any, _: Any) -> Any:
            with on(0):
                y = carry + 1.0
            with on(1):
                return y * 0.5, None

        return jax.lax.scan(body, x, None, length=N_ITERATIONS)[0]

    def there(x: Any) -> Any:
        def body(carry: Any, i: Any) -> Any:
            with on(0):
                y = x + i
            with on(1):
                return carry + y, None

        return jax.lax.scan(body, x, jnp.arange(N_ITERATIONS, dtype=jnp.float32))[0]

    def repeated(x: Any) -> Any:
        def goes_on(state: Any) -> Any:
            with on(0):
                return state[0] < N_ITERATIONS

        def body(state: Any) -> Any:
            with on(0):
                y = state[1] + 1.0
            with on(1):
                z = y * 0.5
            with on(0):
                return state[0] + 1, z

        return jax.lax.while_loop(goes_on, body, (0, x))[1]

    one = np.float32(1)
    loops = {"there and back": there_and_back, "there": there, "while": repeated}
    placed = {name: tf.function(function) for name, function in loops.items()}
    for name, function in loops.items():
        np.testing.assert_allclose(placed[name](one), jax.jit(function)(one))
    times = alternate({n: lambda f=f: float(f(one)) for n, f in placed.items()}, n=1)
    tell(
        {
            "crossing of a loop, there and back": times["there and back"] / (2 * N_ITERATIONS),
            "crossing of a loop, one way": times["there"] / N_ITERATIONS,
            f"while of {N_ITERATIONS} iterations over two tasks": times["while"],
        }
    )


def on_one_device() -> None:
    """A loop without device blocks, in this process."""

    def repeated(x: Any) -> Any:
        numbers = jnp.arange(1.0 * N_SMALL)
        return jax.lax.scan(lambda carry, y: (jnp.sin(carry) + y, None), x, numbers)[0]

    one = np.float32(1)
    calls = {
        f"scan of {N_SMALL} iterations, one device": tf.function(repeated),
        f"jax.jit scan of {N_SMALL} iterations": jax.jit(repeated),
    }
    np.testing.assert_allclose(*(call(one) for call in calls.values()))
    tell(alternate({name: partial(_waited, call, one) for name, call in calls.items()}, n=10))


def main() -> None:
    """All figures."""
    on_one_device()
    with tf.LocalCluster(ps=0, workers=2, cores=[0, 1]) as cluster, tf.connect(cluster.target()):
        pipelines(cluster)
        many(cluster)
        crossings()


if __name__ == "__main__":
    on_one_core() if "alone" in sys.argv else main()

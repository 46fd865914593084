"""Programs and variables on meshes of CPU devices, beside `jax.jit` on the same in one process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jflow as tf
from bench.timing import alternate, tell

SQUARE = {"data": 2, "model": 2}
WIDTH, BATCH = 1024, 256
SPECS = (P(None, "model"), P("model", None))
"""Of two layers, as Megatron divides them."""
ROWS = 25_000
"""Of a matrix with a thousand columns, which has 100 MB."""


def loss(weights: Any, x: Any) -> Any:
    """The loss of a perceptron, whose batch is divided, too."""
    first, second = weights
    x = jax.lax.with_sharding_constraint(x, P("data", None))
    return jnp.mean((jnp.tanh(x @ first) @ second - x) ** 2)


def updated(weights: Any, x: Any) -> tuple[Any, Any]:
    """A step of gradient descent."""
    value, grads = jax.value_and_grad(loss)(weights, x)
    return [w - 0.1 * g for w, g in zip(weights, grads, strict=True)], value


def here() -> Mesh:
    """The mesh of this process."""
    devices = np.array(jax.local_devices()[:4]).reshape(2, 2)
    return Mesh(devices, ("data", "model"), (AxisType.Auto,) * 2)


def values() -> tuple[list[Any], Any]:
    """Weights and a batch."""
    random = np.random.default_rng(0)
    shapes = (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)
    weights = [random.normal(0, 0.01, shape).astype(np.float32) for shape in shapes]
    return weights, random.normal(size=(BATCH, WIDTH)).astype(np.float32)


def of_jax() -> Callable[[], float]:
    """The step by `jax.jit` alone, which donates the weights."""
    weights, x = values()
    mesh = here()
    shardings = [NamedSharding(mesh, spec) for spec in SPECS]
    state = [jax.device_put(w, sharding) for w, sharding in zip(weights, shardings, strict=True)]
    with jax.set_mesh(mesh):
        step = jax.jit(updated, donate_argnums=0, out_shardings=(shardings, None))

    def call() -> float:
        nonlocal state
        with jax.set_mesh(mesh):
            state, value = step(state, x)
        return float(value)

    return call


def of_jflow(where: str) -> Callable[[], float]:
    """The step on a task, or in this process; the weights are variables."""
    weights, x = values()
    with tf.device(where, mesh=SQUARE):
        variables = [tf.Variable(w, sharding=spec) for w, spec in zip(weights, SPECS, strict=True)]

    @tf.function
    def step(x: Any) -> Any:
        with tf.device(where, mesh=SQUARE):
            new, value = updated([v.value() for v in variables], x)
            for v, w in zip(variables, new, strict=True):
                v.assign(w)
            return value

    return lambda: float(step(x))


def increments(where: str) -> dict[str, Callable[[], Any]]:
    """Updates of 100 MB in place, on four devices and on one."""
    value = np.zeros((ROWS, 1000), np.float32)
    with tf.device(where, mesh=SQUARE):
        sharded = tf.Variable(value, sharding=P("data", None))
    mesh = here()
    own = jax.device_put(value, NamedSharding(mesh, P("data", None)))
    add = jax.jit(lambda x: x + 1, donate_argnums=0)

    @tf.function
    def step() -> None:
        with tf.device(where, mesh=SQUARE):
            sharded.assign_add(jnp.ones(()))

    def alone() -> None:
        nonlocal own
        own = add(own).block_until_ready()

    return {
        "update of a sharded 100 MB variable": step,
        "jax.jit update of a sharded 100 MB array": alone,
    }


def crossings() -> dict[str, Callable[[], Any]]:
    """100 MB from a mesh of four to a mesh of two, and from a device to a device."""
    value = np.ones((ROWS, 1000), np.float32)
    first, second = "/job:worker/task:0", "/job:worker/task:1"

    def sending(source: Any, target: Any, **sharding: Any) -> Callable[[], float]:
        with source():
            v = tf.Variable(value, **sharding)

        @tf.function
        def step() -> Any:
            with target():
                x = v.value()
                if sharding:
                    x = jax.lax.with_sharding_constraint(x, P("m", None))
                return x[0, 0]

        return lambda: float(step())

    def on(task: str, n: int) -> Callable[[], Any]:
        return partial(tf.device, task, mesh={"m": n})

    def at(task: str) -> Callable[[], Any]:
        return partial(tf.device, f"{task}/cpu:0")

    return {
        "100 MB from a mesh of 4 to a mesh of 2": sending(
            on(first, 4), on(second, 2), sharding=P("m", None)
        ),
        "100 MB of columns from a mesh of 4 to a mesh of 2": sending(
            on(first, 4), on(second, 2), sharding=P(None, "m")
        ),
        "100 MB from a device to a device": sending(at(first), at(second)),
    }


def main() -> None:
    """All figures."""
    jax.config.update("jax_num_cpu_devices", 4)
    resources = tf.TaskResources(cpu_devices=4)
    with tf.connect():
        steps = {"jax.jit sharded step": of_jax(), "sharded step in this process": of_jflow("")}
        losses = [[step() for _ in range(2)] for step in steps.values()]
        np.testing.assert_allclose(*losses, rtol=1e-4)
        tell(alternate(steps, n=3))
        tell(alternate(increments(""), n=3))
    with (
        tf.LocalCluster(ps=0, workers=2, resources=resources) as cluster,
        tf.connect(cluster.target()),
    ):
        steps = {
            "jax.jit sharded step, beside a task": of_jax(),
            "sharded step on a task": of_jflow("/job:worker/task:0"),
        }
        tell(alternate(steps, n=3))
        tell(alternate(crossings(), n=2))


if __name__ == "__main__":
    main()

"""Pipelines of devices whose programs sleep, beside the ideal: what schedules and messages cost.

The devices are servers in this process, and each matrix product of a program takes `PART_S`,
without a processor: a forward stage takes one part, a backward stage two. The ideal of m
microbatches over p devices is (m + p - 1) times the three.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import jflow as tf
from bench.timing import alternate, tell
from jflow.task.execution import StepState
from jflow.testing import in_process

SIZES = ((2, 8), (2, 32), (4, 8), (4, 16), (4, 32))
"""Numbers of devices and of microbatches."""

_PRODUCT = re.compile(r"= f32\[[\d,]*\]\S* dot\(")


@contextmanager
def sleeping(part_s: float) -> Iterator[None]:
    """A block in which a program sleeps, `part_s` for each of its products, before it runs."""
    known: dict[int, int] = {}

    def products(program: Any) -> int:
        if id(program) not in known:
            known[id(program)] = len(_PRODUCT.findall(program.as_text()))
        return known[id(program)]

    compute = StepState.compute

    def slow(state: StepState, run: Any, **options: Any) -> None:
        time.sleep(part_s * products(run.executable))
        compute(state, run, **options)

    with mock.patch.object(StepState, "compute", slow):
        yield


def on(stage: int) -> Any:
    """A block for the device of a stage."""
    return tf.device(f"/job:worker/task:{stage}")


def loss(weights: Any, x: Any) -> Any:
    """A product a stage."""
    for stage, (weight, bias) in enumerate(weights):
        with on(stage):
            x = jnp.tanh((x + bias) @ weight)
    with on(len(weights) - 1):
        return jnp.sum(x)


def gpipe(weights: Any, xs: Any) -> Any:
    """The gradient of a scan."""

    def total(weights: Any) -> Any:
        def body(carry: Any, x: Any) -> Any:
            value = loss(weights, x)
            with on(len(weights) - 1):
                return carry + value, None

        return jax.lax.scan(body, jnp.float32(0), xs)[0]

    return jax.grad(total)(weights)


def one_f_one_b(weights: Any, xs: Any) -> Any:
    """A scan of the gradient."""

    def body(total: Any, x: Any) -> Any:
        return jax.tree.map(jnp.add, total, jax.grad(loss)(weights, x)), None

    return jax.lax.scan(body, jax.tree.map(jnp.zeros_like, weights), xs)[0]


def step(schedule: Callable[..., Any], p: int, m: int) -> Callable[[], Any]:
    """A compiled step of a schedule, with the same gradient as that of one device."""
    rng = np.random.default_rng(0)
    weights = [
        (rng.normal(size=(8, 8)).astype("f") * 0.3, np.zeros(8, np.float32)) for _ in range(p)
    ]
    xs = rng.normal(size=(m, 4, 8)).astype("f")
    placed = tf.function(schedule)
    wanted = jax.tree.leaves(jax.jit(schedule)(weights, xs))
    for found, reference in zip(jax.tree.leaves(placed(weights, xs)), wanted, strict=True):
        np.testing.assert_allclose(found, reference, 1e-4, 1e-4)
    return lambda: jax.block_until_ready(placed(weights, xs))


def main() -> None:
    """All sizes and schedules, with parts of 10 ms; the larger ones with 5 ms."""
    jax.config.update("jax_num_cpu_devices", 1)
    for p in (2, 4):
        with in_process({"worker": p}) as backend, tf.connect(backend.target):
            for devices, m in SIZES:
                if devices != p:
                    continue
                steps = {"GPipe": step(gpipe, p, m), "1F1B": step(one_f_one_b, p, m)}
                for part_ms in (10, 5):
                    ideal = 3 * (m + p - 1) * part_ms / 1000
                    with sleeping(part_ms / 1000):
                        for taken in steps.values():
                            taken()  # its programs are known to be slow from now on
                        times = alternate(steps, n=1, rounds=3)
                    where = f"{p} devices, {m} microbatches, parts of {part_ms} ms"
                    tell({f"{name}, {where}": taken for name, taken in times.items()})
                    tell({f"ideal, {where}": ideal})


if __name__ == "__main__":
    main()

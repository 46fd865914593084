"""Operations and bytes that are counted from equations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.cluster import Device, Task
from jflow.placement.costs import OTHER_TASK, SAME_TASK, bytes_of, estimated, work_of

A = jnp.ones((8, 16))
B = jnp.ones((16, 32))
TABLE = jnp.ones((100_000, 4))
ROWS = jnp.arange(10)


def counted(fun, *args) -> tuple[float, float]:
    """The sums over the equations of a function."""
    work = [work_of(eqn) for eqn in jax.make_jaxpr(fun)(*args).eqns]
    return sum(flops for flops, _ in work), sum(n_bytes for _, n_bytes in work)


def scanned(x):
    return jax.lax.scan(lambda c, _: (jnp.tanh(c), None), x, None, length=10)[0]


@pytest.mark.parametrize(
    ("fun", "args", "flops", "n_bytes"),
    [
        (jnp.dot, (A, B), 2 * 8 * 16 * 32, 4 * (8 * 16 + 16 * 32 + 8 * 32)),
        (jnp.tanh, (A,), 8 * 16, 4 * 2 * 8 * 16),
        (jnp.sum, (A,), 8 * 16, 4 * (8 * 16 + 1)),
        (lambda x: x.reshape(-1), (A,), 0, 0),
        (scanned, (A,), 10 * 8 * 16, 10 * 4 * 2 * 8 * 16),
        (jax.jit(jnp.tanh), (A,), 8 * 16, 4 * 2 * 8 * 16),
    ],
    ids=["dot", "tanh", "sum", "reshape", "scan", "jit"],
)
def test_equations_are_counted(fun, args, flops, n_bytes) -> None:
    assert counted(fun, *args) == (flops, n_bytes)


def test_a_convolution_counts_its_window() -> None:
    image, kernel = jnp.ones((1, 3, 8, 8)), jnp.ones((5, 3, 3, 3))
    flops, _ = counted(lambda x, w: jax.lax.conv(x, w, (1, 1), "SAME"), image, kernel)
    assert flops == 2 * (5 * 8 * 8) * (3 * 3 * 3)


def test_a_gather_and_a_scatter_count_the_rows_that_they_touch() -> None:
    _, gathered = counted(lambda t, i: t[i], TABLE, ROWS)
    _, scattered = counted(lambda t, i: t.at[i].add(1.0), TABLE, ROWS)
    assert 0 < gathered < 5_000
    assert 0 < scattered < 5_000


def test_of_branches_the_longest_counts() -> None:
    def branch(x):
        return jax.lax.cond(x[0, 0] > 0, lambda y: jnp.tanh(jnp.tanh(y)), lambda y: y, x)

    flops, _ = counted(branch, A)
    assert 2 * 8 * 16 <= flops < 2 * 8 * 16 + 10


def test_tensors_of_any_kind_have_a_size() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, (None, 3))
        assert bytes_of(x) == 32 * 3 * 4
        assert bytes_of(tf.constant(["a", "b"])) == 2 * 64
        assert bytes_of(tf.constant(jax.random.key(0))) > 0
        assert bytes_of(tf.placeholder(tf.float32)) > 0


def test_devices_of_a_task_are_nearer_than_those_of_another() -> None:
    one, two = Task("worker", 0), Task("worker", 1)
    devices = [Device(one, "CPU", 0), Device(one, "GPU", 0), Device(two, "CPU", 0)]
    with tf.Graph().as_default() as graph:
        _ = tf.constant(np.ones((500, 500), np.float32)) @ np.ones((500, 500), np.float32)
        costs = estimated(graph.get_operations(), devices)
    assert costs.transfer(6e6, 0, 1) == pytest.approx(SAME_TASK.latency + 6e6 / SAME_TASK.bandwidth)
    assert costs.transfer(6e6, 0, 2) == pytest.approx(
        OTHER_TASK.latency + 6e6 / OTHER_TASK.bandwidth
    )
    assert costs.transfer(6e6, 1, 1) == 0
    slowest = costs.seconds.max(axis=0)
    assert slowest[1] < slowest[0] / 10
    assert slowest[0] == slowest[2]

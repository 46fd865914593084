"""What is counted from equations, and how fusion is imitated."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.compiler.placement.equations import NEAR_BYTES, Count
from jflow.compiler.placement.work import count_operations, count_program

A, B, TABLE = (
    jax.device_put(np.ones(shape, np.float32)) for shape in ((8, 16), (16, 32), (100_000, 4))
)
ROWS = jax.device_put(np.arange(10, dtype=np.int32))
N = 8 * 16


def counted(fun, *args):
    """The counts of a function as one program, by name, without those that are 0."""
    counts = count_program(jax.make_jaxpr(fun)(*args).jaxpr)
    return {count.name: counts[count] for count in Count if counts[count]}


def scanned(x):
    return jax.lax.scan(lambda c, _: (jnp.tanh(c), None), x, None, length=10)[0]


@pytest.mark.parametrize(
    ("fun", "args", "wanted"),
    [
        (
            jnp.dot,
            (A, B),
            {"FLOPS": 2 * 8 * 16 * 32, "NEAR_BYTES": 4 * (N + 16 * 32 + 8 * 32), "KERNELS": 1},
        ),
        (jnp.tanh, (A,), {"TRANSCENDENTALS": N, "NEAR_BYTES": 4 * 2 * N, "KERNELS": 1}),
        (jax.jit(jnp.tanh), (A,), {"TRANSCENDENTALS": N, "NEAR_BYTES": 4 * 2 * N, "KERNELS": 1}),
        (jnp.sum, (A,), {"ELEMENTS": N, "NEAR_BYTES": 4 * (N + 1), "REDUCTIONS": 1}),
        (lambda x: x.reshape(-1), (A,), {}),
        (
            scanned,
            (A,),
            {
                "TRANSCENDENTALS": 10 * N,
                "NEAR_BYTES": 10 * 4 * 2 * N,
                "ITERATIONS": 10 * 2,
            },
        ),
    ],
    ids=["dot", "tanh", "jit", "sum", "reshape", "scan"],
)
def test_a_program_is_counted(fun, args, wanted) -> None:
    assert counted(fun, *args) == wanted


def test_a_chain_of_elementwise_operations_reads_and_writes_once() -> None:
    def chain(x):
        for _ in range(32):
            x = x * 2.0 + 1.0
        return x

    assert counted(chain, A) == {"ELEMENTS": 64 * N, "NEAR_BYTES": 4 * 2 * N, "KERNELS": 1}


def test_what_a_product_needs_is_in_memory() -> None:
    found = counted(lambda x, w: jnp.dot(x + 1.0, w), A, B)
    assert found["KERNELS"] == 2
    assert found["NEAR_BYTES"] == 4 * (3 * N + 16 * 32 + 8 * 32)


def test_an_expensive_value_with_two_users_is_computed_once_and_kept() -> None:
    def twice(x):
        y = jnp.exp(x)
        return y.sum(0), y.sum(1)

    found = counted(twice, A)
    assert found["TRANSCENDENTALS"] == N
    assert (found["KERNELS"], found["REDUCTIONS"]) == (1, 2)
    assert found["NEAR_BYTES"] == 4 * (2 * N + 2 * N + 16 + 8)


def test_what_nothing_uses_is_not_counted() -> None:
    def fun(x):
        jnp.exp(x)
        return x + 1.0

    assert "TRANSCENDENTALS" not in counted(fun, A)


def test_a_softmax_is_far_fewer_kernels_than_equations() -> None:
    found = counted(jax.nn.softmax, A)
    assert found["KERNELS"] + found["REDUCTIONS"] <= 4
    assert found["TRANSCENDENTALS"] == N


def test_a_transposed_argument_of_a_product_is_not_moved() -> None:
    folded = counted(lambda x, w: jnp.dot(x, w.T), A, A)
    moved = counted(lambda x: x.T, A)
    assert folded == counted(jnp.dot, A, A.T)
    assert moved["NEAR_BYTES"] == 4 * 2 * N
    assert moved["ELEMENTS"] > N


def test_large_arrays_are_counted_apart() -> None:
    x = jnp.ones(NEAR_BYTES)
    assert counted(lambda x: x + 1.0, x)["FAR_BYTES"] == 2 * 4 * NEAR_BYTES


def test_a_convolution_counts_its_window() -> None:
    image, kernel = jnp.ones((1, 3, 8, 8)), jnp.ones((5, 3, 3, 3))
    found = counted(lambda x, w: jax.lax.conv(x, w, (1, 1), "SAME"), image, kernel)
    assert found["CONVOLUTIONS"] == 2 * (5 * 8 * 8) * (3 * 3 * 3)


def test_a_gather_and_a_scatter_count_the_rows_that_they_touch() -> None:
    gathered = counted(lambda t, i: t[i], TABLE, ROWS)
    scattered = counted(lambda t, i: t.at[i].add(1.0), TABLE, ROWS)
    for found in (gathered, scattered):
        assert 0 < found["NEAR_BYTES"] + found["FAR_BYTES"] < 5_000


def test_of_branches_the_longest_counts() -> None:
    def branch(x):
        return jax.lax.cond(x[0, 0] > 0, lambda y: jnp.tanh(jnp.tanh(y)), lambda y: y, x)

    assert counted(branch, A)["TRANSCENDENTALS"] == 2 * N


def test_the_flops_of_products_are_those_that_xla_counts() -> None:
    def network(x, w, v):
        return jnp.dot(jax.nn.relu(jnp.dot(x, w)), v).sum()

    args = (A, B, jnp.ones((32, 4)))
    grad = jax.grad(network, argnums=(1, 2))
    theirs = jax.jit(grad).lower(*args).compile().cost_analysis()["flops"]
    assert counted(grad, *args)["FLOPS"] == pytest.approx(theirs, rel=0.1)


def test_the_bytes_of_a_fused_program_are_near_those_that_xla_counts() -> None:
    def fun(x):
        return jnp.dot(jax.nn.softmax(x * 2.0 + 1.0), jnp.tanh(x).T)

    x = jnp.ones((128, 128))
    theirs = jax.jit(fun).lower(x).compile().cost_analysis()["bytes accessed"]
    assert counted(fun, x)["NEAR_BYTES"] == pytest.approx(theirs, rel=0.2)


def unrolled(x, factors):
    """A recurrence, every state of which is used by a kernel of its own."""
    products = []
    for factor in factors:
        x = x * factor
        products.append((x + 1.0) @ factor)
    return products


@pytest.mark.parametrize("n_steps", [1, 4, 12])
def test_what_several_kernels_use_is_computed_in_each_as_by_xla(n_steps: int) -> None:
    factors = [jnp.ones((16, 16))] * n_steps
    theirs = jax.jit(unrolled).lower(factors[0], factors).compile().cost_analysis()
    ours = counted(unrolled, factors[0], factors)
    assert ours["FLOPS"] + ours["ELEMENTS"] == theirs["flops"]
    assert ours["NEAR_BYTES"] == pytest.approx(theirs["bytes accessed"], rel=0.01)


def test_the_counts_of_operations_add_up_to_those_of_their_program() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, (8, 16))
        y = tf.numpy.exp(x)
        z = tf.numpy.sum(y * 2.0 + 1.0)
        ops = graph.get_operations()
        counts = dict(zip(ops, count_operations(ops), strict=True))
    assert sum(counts.values()).tolist() == pytest.approx(
        count_program(jax.make_jaxpr(lambda x: jnp.sum(jnp.exp(x) * 2.0 + 1.0))(A).jaxpr).tolist()
    )
    assert counts[y.op][Count.TRANSCENDENTALS] == N
    assert counts[y.op][Count.NEAR_BYTES] == 4 * N
    assert counts[z.op][Count.NEAR_BYTES] == 4
    assert not counts[x.op].any()


def test_an_update_touches_the_rows_of_its_variable_only() -> None:
    with tf.Graph().as_default() as graph:
        table = tf.Variable(np.zeros((100_000, 4), np.float32))
        updated = tf.scatter_add(table, np.arange(10), np.ones((10, 4), np.float32))
        ops = graph.get_operations()
        counts = dict(zip(ops, count_operations(ops), strict=True))
    assert 0 < counts[updated.op][Count.NEAR_BYTES] + counts[updated.op][Count.FAR_BYTES] < 5_000


def test_a_call_of_the_host_is_a_call() -> None:
    with tf.Graph().as_default() as graph:
        text = tf.as_string(tf.placeholder(tf.float32, ()))
        ops = graph.get_operations()
        counts = count_operations(ops)[ops.index(text.op)]
    assert counts[Count.CALLS] == 1
    assert not counts[Count.KERNELS]

"""Programs written and read: what they compute, their types and their derivatives are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.client.export.archive import Archive
from jflow.client.export.document import VERSION, Document
from jflow.client.export.graph_writing import write_graph
from jflow.client.export.reading import ProgramReader
from jflow.client.export.special import EXPORTED
from jflow.client.export.writing import Tables

X = jax.device_put(np.arange(9, dtype=np.float32).reshape(3, 3) / 4 - 1)
KEY = jax.random.key(3)


@jax.custom_vjp
def scaled(x: jax.Array, n: jax.Array) -> jax.Array:
    """Has a derivative that is not that of its body, and an argument without one."""
    return x * n


scaled.defvjp(lambda x, n: (x * n, n), lambda n, g: (g * 7 * n, None))


@jax.custom_jvp
def power(x: jax.Array) -> jax.Array:
    """Has a rule that uses the function itself."""
    return jnp.exp(x)


power.defjvp(lambda primals, tangents: (power(*primals), 3 * power(*primals) * tangents[0]))


DIFFERENTIABLE: dict[str, Callable[..., Any]] = {
    "activations": lambda x: jax.nn.relu(x) + jax.nn.softmax(x) + jax.nn.gelu(x) + jax.nn.silu(x),
    "logsumexp": jax.nn.logsumexp,
    "a user's vjp": lambda x: scaled(x, jnp.int32(2)),
    "a user's jvp": power,
    "scan": lambda x: jax.lax.scan(lambda c, row: (c + row, c * row), x[0], x)[1],
    "cond": lambda x: jax.lax.cond(x[0, 0] > 1, jnp.sin, jnp.cos, x),
    "checkpoint": jax.checkpoint(lambda y: jnp.sin(y) * 2),
    "rows": lambda x: x.at[jnp.array([0, 1])].add(1.0).at[0].subtract(2.0)[jnp.array([1, 0])],
    "a constant": jax.jit(lambda y: y * np.arange(9.0, dtype=np.float32).reshape(3, 3)),
    "special numbers": lambda x: jnp.where(x > 0, -0.0, jnp.inf) + x,
    "convolution": lambda x: jax.lax.conv(x[None, None], x[None, None, :2, :2], (1, 1), "SAME"),
    "precision": lambda x: jnp.matmul(x, x, precision="highest"),
    "a solution": lambda x: jnp.linalg.solve(x + 3 * jnp.eye(3), x),
    "a general reduction": lambda x: jax.lax.reduce(x, 1.0, lambda a, b: a * b + b, (0,)),
}
OTHERS: dict[str, tuple[Callable[..., Any], Any]] = {
    "while": (lambda x: jax.lax.while_loop(lambda c: c.sum() < 10, lambda c: c + 1, x), X),
    "keys": (lambda k: (jax.random.normal(jax.random.split(k)[0], (3,)), jax.random.key(1)), KEY),
    "fft": (jnp.fft.fft, X),
    "small types": (lambda x: x.astype("bfloat16").astype("int4"), X),
    "sorting": (lambda x: (jnp.sort(x), jnp.argsort(x), jax.lax.top_k(x, 2)), X),
    "weak numbers": (lambda x: (jnp.sin(2.0), x * 2, jnp.full((2,), 3)), X),
    "reduced windows": (
        lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (2, 2), (1, 1), "VALID"),
        X,
    ),
}


def again(jaxpr: jex.ClosedJaxpr) -> tuple[jex.ClosedJaxpr, Archive]:
    """The program, written and read."""

    def none(_: Any) -> Any:
        raise AssertionError

    tables = Tables(none, none)
    index = tables.program(jaxpr)
    document = Document(
        *("graph", VERSION, jax.__version__, False, len(tables.blobs), tuple(tables.avals)),
        *(tables.entries, tuple(tables.programs), (), (), (), (), {}, ()),
    )
    read = Document.from_bytes(document.to_bytes())
    assert read == document
    archive = Archive(read, tables.arrays, tables.blobs)
    return ProgramReader(archive, None).program(index), archive


def as_arrays(values: Any) -> list[np.ndarray]:
    return [
        np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
        for x in values
    ]


@pytest.mark.parametrize("name", [*DIFFERENTIABLE, *OTHERS])
def test_a_program_computes_the_same_after_it_was_written_and_read(name: str) -> None:
    fun, argument = OTHERS[name] if name in OTHERS else (DIFFERENTIABLE[name], X)
    jaxpr = jax.make_jaxpr(lambda x: jax.tree.leaves(fun(x)))(argument)
    found, _ = again(jaxpr)
    types = [[(x.shape, x.dtype, x.weak_type) for x in each.out_avals] for each in (found, jaxpr)]
    assert types[0] == types[1]
    for one, other in zip(
        as_arrays(jex.jaxpr_as_fun(found)(argument)),
        as_arrays(jex.jaxpr_as_fun(jaxpr)(argument)),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_a_program_keeps_its_derivative(name: str) -> None:
    fun = DIFFERENTIABLE[name]
    found, _ = again(jax.make_jaxpr(fun)(X))
    slope = jax.jit(jax.grad(lambda x: jex.jaxpr_as_fun(found)(x)[0].sum()))(X)
    wanted = jax.jit(jax.grad(lambda x: fun(x).sum()))(X)
    np.testing.assert_allclose(slope, wanted, rtol=1e-5)


def test_only_what_has_no_written_form_is_stablehlo_for_every_platform() -> None:
    jaxpr = jax.make_jaxpr(lambda x: DIFFERENTIABLE["a general reduction"](jnp.sin(x)))(X)
    _, archive = again(jaxpr)
    (program,) = archive.document.programs
    assert [equation.primitive for equation in program.equations] == ["sin", EXPORTED]
    (blob,) = archive.programs
    exported = jax.export.deserialize(bytearray(blob))
    assert set(exported.platforms) == {"cpu", "cuda", "rocm", "tpu"}


def test_equal_programs_are_written_once() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.constant([1.0, 2.0])
        for _ in range(50):
            x = tf.numpy.tanh(x) * 2.0
        document = write_graph(graph).document
    assert len(document.nodes) == 101
    assert len(document.programs) <= 3


def test_random_bits_depend_on_the_setting_they_were_traced_with() -> None:
    with jax.threefry_partitionable(False):
        jaxpr = jax.make_jaxpr(lambda k: jax.random.bits(k, (5,)))(KEY)
    found, _ = again(jaxpr)
    np.testing.assert_array_equal(jex.jaxpr_as_fun(found)(KEY)[0], jex.jaxpr_as_fun(jaxpr)(KEY)[0])
    assert (jex.jaxpr_as_fun(found)(KEY)[0] != jax.random.bits(KEY, (5,))).any()

"""Equinox and what is built on it, with default arguments: checks that raise call the client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import lineax
import numpy as np
import optimistix
import pytest

import jflow as tf


@pytest.fixture(scope="module", params=["this process", "a cluster"])
def connection(request: pytest.FixtureRequest) -> Iterator[tf.Connection]:
    if request.param == "this process":
        with tf.connect() as connection:
            yield connection
        return
    with (
        tf.LocalCluster(ps=1, workers=1) as cluster,
        tf.connect(cluster.target("worker", 0)) as connection,
    ):
        yield connection


def _solve(matrix: Any, vector: Any) -> Any:
    return lineax.linear_solve(lineax.MatrixLinearOperator(matrix), vector).value


def _root(x: Any) -> Any:
    solver = optimistix.Newton(rtol=1e-5, atol=1e-5)
    return optimistix.root_find(lambda y, _: y - jnp.tanh(y + 1), solver, x).value


def _decay(x: Any) -> Any:
    term = diffrax.ODETerm(lambda t, y, args: -y)
    return diffrax.diffeqsolve(term, diffrax.Dopri5(), t0=0.0, t1=1.0, dt0=0.1, y0=x).ys


def _checked(x: Any) -> Any:
    return eqx.error_if(x, jnp.any(x > 2), "x is too large") * 2


X = jnp.float32([0.5, 1.0])
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "error_if": (_checked, (X,)),
    "gradient of error_if": (jax.grad(lambda x: jnp.sum(_checked(x))), (X,)),
    "error_if for each": (jax.vmap(_checked), (X,)),
    "linear_solve": (_solve, (jnp.float32([[2, 1], [0, 3]]), X)),
    "gradient of linear_solve": (jax.grad(lambda a, b: jnp.sum(_solve(a, b))), (jnp.eye(2), X)),
    "root_find": (_root, (X,)),
    "root_find for each": (jax.vmap(_root), (X,)),
    "diffeqsolve": (_decay, (X,)),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.usefixtures("connection")
def test_a_program_gives_what_it_gives_under_jit(name: str) -> None:
    program, args = PROGRAMS[name]
    found, wanted = tf.function(program)(*args), jax.jit(program)(*args)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), found, wanted)


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit, jax.vmap])
@pytest.mark.usefixtures("connection")
def test_a_check_raises_at_the_users_line(transform: Any) -> None:
    call = tf.function(transform(_checked))
    line = _checked.__code__.co_firstlineno + 1
    with pytest.raises(RuntimeError, match="x is too large") as caught:
        call(X * 3)
    assert f"{__file__}:{line} in _checked" in "".join(caught.value.__notes__)
    np.testing.assert_array_equal(call(X), X * 2)


@pytest.mark.usefixtures("connection")
def test_a_solver_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match="maximum number of"):
        tf.function(
            lambda x: (
                optimistix.root_find(
                    lambda y, _: y * y + 1, optimistix.Newton(1e-5, 1e-5), x, max_steps=4
                ).value
            )
        )(jnp.float32(1))


def test_a_check_in_a_loop_fails_on_a_cluster_at_its_line() -> None:
    with tf.LocalCluster(workers=1) as cluster, tf.connect(cluster.target("worker", 0)):
        call = tf.function(lambda x: jax.lax.map(_checked, x))
        np.testing.assert_array_equal(call(X), X * 2)
        with pytest.raises(RuntimeError, match="x is too large") as caught:
            call(X * 3)
    line = _checked.__code__.co_firstlineno + 1
    assert f"{__file__}:{line} in _checked" in "".join(caught.value.__notes__)

"""Linear algebra and solvers, whose native functions a server checks, as `jax.jit` has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.lax import linalg
from jax.scipy.optimize import minimize
from jax.scipy.sparse.linalg import gmres

import jflow as tf

pytestmark = [
    pytest.mark.usefixtures("connection"),
    # Sessions of this process run what `jax.jit` runs, which nothing checks.
    pytest.mark.parametrize("backend", ["processes"], indirect=True),
]

_DRAWN = np.random.default_rng(3)
A = jax.device_put(np.float32(_DRAWN.normal(size=(5, 5)) + 6 * np.eye(5)))
B = jax.device_put(np.float32(_DRAWN.normal(size=(5, 2))))


def _reflectors(a: Any) -> tuple[Any, Any]:
    h, taus = jnp.linalg.qr(a, mode="raw")
    return h.mT, taus


def _levenberg_marquardt(a: Any, b: Any) -> Any:
    """Damped least squares, each step by a QR decomposition that is applied without its Q."""
    x = jnp.ones(a.shape[1])
    for damping in (1.0, 0.1):
        residual = jnp.concatenate([jnp.tanh(a @ x) - b[:, 0], jnp.zeros_like(x)])
        slope = jax.jacobian(lambda x: jnp.tanh(a @ x))(x)
        stacked = jnp.concatenate([slope, damping * jnp.eye(x.size)])
        r, taus = _reflectors(stacked)
        rotated = linalg.ormqr(r, taus, residual[:, None], transpose=True)
        x -= jax.scipy.linalg.solve_triangular(r[: x.size], rotated[: x.size])[:, 0]
    return x


DECOMPOSITIONS: dict[str, Callable[[Any, Any], Any]] = {
    "levenberg-marquardt": _levenberg_marquardt,
    "reflectors, complex": lambda a, b: linalg.ormqr(
        *_reflectors(a + 1j * a.T), b.T + 0j, left=False, transpose=True
    ),
    "qr with pivots": lambda a, b: jax.scipy.linalg.qr(a, pivoting=True),
    "svd by qr": lambda a, b: linalg.svd(a, algorithm=linalg.SvdAlgorithm.QR),
    "singular diagonals": lambda a, b: linalg.tridiagonal_solve(
        a[0] * 0, a[0], a[0] * 0, b, perturb_singular=True
    ),
}


def test_decompositions_give_what_they_give_under_jit() -> None:
    def run(a: Any, b: Any) -> Any:
        return {name: decompose(a, b) for name, decompose in DECOMPOSITIONS.items()}

    found, wanted = tf.function(run)(A, B), jax.jit(run)(A, B)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-3, atol=2e-3), found, wanted)


def test_iterative_solvers_find_their_solutions() -> None:
    @tf.function
    def solve(a: Any, b: Any) -> Any:
        solution, _ = gmres(lambda x: a @ x, b, restart=5, maxiter=4, solve_method="batched")
        return solution, minimize(lambda x: jnp.sum((a @ x - b) ** 2), b, method="BFGS").x

    for found in solve(A, B[:, 0]):
        np.testing.assert_allclose(A @ found, B[:, 0], atol=1e-3)

"""Programs that JAX lowers for accelerators are validated on machines that have none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from jflow.plan.xla.validation import validated

_ROWS = np.linspace(0.1, 1.0, 24, dtype=np.float32).reshape(4, 6)
X, IMAGE = jax.device_put((_ROWS, _ROWS[None, None]))
SQUARE = jax.device_put(np.eye(4, dtype=np.float32) + np.float32(0.1))

FUNCTIONS: dict[str, Callable[[], Any]] = {
    # On GPUs these have operands in segments, whose sizes are an attribute of no StableHLO kind.
    "cumsum": lambda: jnp.cumsum(X, 0),
    "cumprod": lambda: jnp.cumprod(X, 1),
    "cummax": lambda: jax.lax.cummax(X, reverse=True),
    "cumlogsumexp": lambda: jax.lax.cumlogsumexp(X),
    "derivative of cumsum": lambda: jax.grad(lambda x: (jnp.cumsum(x) ** 2).sum())(X),
    "rows of a table": lambda: jnp.unique(jnp.arange(4), size=4),
    "sort": lambda: jnp.sort(X),
    "top_k": lambda: jax.lax.top_k(X, 2),
    "approx_max_k": lambda: jax.lax.approx_max_k(X, 2),
    "convolution": lambda: jax.lax.conv(IMAGE, IMAGE[..., :2, :2], (1, 1), "SAME"),
    "pooling": lambda: jax.lax.reduce_window(X, 0.0, jax.lax.add, (2, 2), (1, 1), "SAME"),
    "fft": lambda: jnp.fft.rfft(X),
    "normal": lambda: jax.random.normal(jax.random.key(0), (5,)),
    "permutation": lambda: jax.random.permutation(jax.random.key(0), X),
    "gamma": lambda: jax.random.gamma(jax.random.key(0), 2.0, (5,)),
    "while": lambda: jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, X)),
    "scan": lambda: jax.lax.scan(lambda carry, row: (carry + row, carry), X[0], X),
    "scatter": lambda: X.at[jnp.arange(4)].add(1.0),
    "erf_inv": lambda: jax.scipy.special.erfinv(X),
    "float8": lambda: X.astype(jnp.float8_e4m3fn).astype(jnp.float32),
    "attention": lambda: jax.nn.dot_product_attention(*(X[None, :, None],) * 3),
    "cholesky": lambda: jnp.linalg.cholesky(SQUARE),
    "solve": lambda: jnp.linalg.solve(SQUARE, SQUARE),
}


@pytest.mark.parametrize("platform", ["cuda", "rocm", "tpu"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_jax_lowers_for_an_accelerator_is_valid(name: str, platform: str) -> None:
    sent = bytes(jax.export.export(jax.jit(FUNCTIONS[name]), platforms=[platform])().serialize())
    kept = validated(sent).data
    before, after = (jax.export.deserialize(bytearray(data)) for data in (sent, kept))
    assert after.platforms == (platform,)
    assert after.out_avals == before.out_avals
    assert validated(kept).data == kept

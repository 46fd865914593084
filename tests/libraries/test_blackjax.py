"""BlackJAX: a sampler as it is, with a density that several devices compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf

N_SAMPLES = 20
WORKERS = ["/job:worker/task:0", "/job:worker/task:1"]


def _sampling(prior_device: str, data_device: str) -> Callable[..., Any]:
    """Hamiltonian Monte Carlo for the mean of some data."""
    data = np.random.default_rng(0).normal(2.0, 1.0, size=(64, 3)).astype(np.float32)

    def density(x: Any) -> Any:
        with tf.device(prior_device):
            prior = -0.5 * jnp.sum(x**2) / 100
        with tf.device(data_device):
            return prior - 0.5 * jnp.sum((data - x) ** 2)

    def sample(key: Any, first: Any) -> Any:
        hmc = blackjax.hmc(density, 0.05, jnp.ones(3), 5)

        def body(state: Any, key: Any) -> tuple[Any, Any]:
            state, info = hmc.step(key, state)
            return state, (state.position, info.acceptance_rate)

        return jax.lax.scan(body, hmc.init(first), jax.random.split(key, N_SAMPLES))[1]

    return sample


@pytest.mark.parametrize("devices", [WORKERS, WORKERS[1:] * 2], ids=["both", "another"])
def test_a_density_on_other_devices_gives_the_samples_of_jit(devices: list[str]) -> None:
    sample = _sampling(*devices)
    key, first = jax.random.key(0), np.zeros(3, np.float32)
    wanted = jax.jit(sample)(key, first)
    with tf.LocalCluster(ps=0, workers=2) as cluster, tf.connect(cluster.target()):
        found = tf.function(sample)(key, first)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-3, 1e-4), found, wanted)

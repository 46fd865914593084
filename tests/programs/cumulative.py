"""Runs on a device of another task what JAX lowers otherwise for a GPU, `cumulative.py DEVICE`."""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import jflow as tf

FUNCTIONS = [jnp.cumsum, jnp.cumprod, jax.lax.cummax, jax.lax.cumlogsumexp, jnp.sort]
x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def on_device(compute):
    """The function, as one of jflow that runs on the device."""

    @tf.function
    def there(x):
        with tf.device(sys.argv[1]):
            return compute(x, axis=1)

    return there


with tf.LocalCluster(ps=1, workers=1) as cluster, tf.connect(cluster.target()):
    for compute in FUNCTIONS:
        np.testing.assert_allclose(on_device(compute)(x), compute(x, axis=1), rtol=1e-5)

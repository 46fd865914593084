"""A program that uses everything that could say who wrote it; see `test_export.py`.

The test reads this file, runs copies of it from elsewhere and in other processes, and compares.
"""

import jax
import jax.numpy as jnp

import jflow as tf


def body(carry, row):
    return jnp.tanh(carry + row), carry * 2


@jax.custom_vjp
def custom(x):
    return jnp.sin(x) * 2


custom.defvjp(lambda x: (custom(x), x), lambda x, slope: (slope * jnp.cos(x) * 2,))


@jax.jit
def inner(x):
    return jnp.cos(x) + 1


def whole(x):
    with jax.named_scope("a name that says nothing"):
        return inner(x) * custom(x)


def build(factor=2.0):
    """Tensors to fetch."""
    x = tf.constant([1.0, 2.0, 3.0])
    carried, rows = tf.lax.scan(body, tf.constant(0.5), x)
    turned = tf.lax.cond(x[0] > 0, lambda a: a * factor, lambda a: a - 1, carried)
    _, grown = tf.lax.while_loop(lambda a: a[0] < 3, lambda a: (a[0] + 1, a[1] * 2), (0, turned))
    soft = tf.nn.softmax(tf.nn.gelu(tf.nn.relu(rows)))
    result = tf.get_default_graph().apply(whole, (soft,))
    (slope,) = tf.gradients(result, x)
    return grown, soft, result, slope

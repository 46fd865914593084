"""Training steps of five models as people write them, placed on a small cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen

import jflow as tf
import jflow.lax
import jflow.nn
import jflow.numpy as tnp
from jflow.view.picture import Placed


def placed_models() -> Iterator[tuple[str, Placed]]:
    """Yields the name and the placement of each model's training step."""
    with tf.LocalCluster(ps=2, workers=2) as cluster:
        for build in (convolutional, recommender, towers):
            with tf.Graph().as_default(), tf.Session(cluster.target()) as session:
                yield build.__name__, session.placement(*build())
        for make in (transformer, pipeline):
            with tf.connect(cluster.target()):
                function, args = make()
                yield make.__name__, function.placement(*args)


def _variable(name: str, shape: tuple[int, ...]) -> tf.Variable:
    return tf.get_variable(name, shape, tf.float32)


@tf.function
def convolved(images: Any, kernel: Any, bias: Any) -> Any:
    """A convolution, its bias, a rectifier and the maximum of each 2 by 2 pixels."""
    with jax.named_scope("convolution"):
        numbers = ("NHWC", "HWIO", "NHWC")
        images = jax.lax.conv_general_dilated(
            images, kernel, (1, 1), "SAME", dimension_numbers=numbers
        )
    with jax.named_scope("pool"):
        window = (1, 2, 2, 1)
        rectified = jax.nn.relu(images + bias)
        return jax.lax.reduce_window(rectified, -jnp.inf, jax.lax.max, window, window, "SAME")


@tf.function
def cross_entropy(logits: Any, labels: Any) -> Any:
    """The mean cross entropy of int32 labels."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def _variables(tree: Any, prefix: str = "") -> Any:
    """Makes a variable of each leaf, which its path names."""

    def variable(path: Any, value: Any) -> tf.Variable:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        return tf.Variable(value, name=prefix + name)

    return jax.tree_util.tree_map_with_path(variable, tree)


def convolutional() -> tuple[Any, list[Any]]:
    """A CNN of TensorFlow 1's shape with Adam, its variables on a parameter server."""
    images = tf.placeholder(tf.float32, (32, 28, 28, 1), name="images")
    labels = tf.placeholder(tf.int32, (32,), name="labels")
    on_worker = tf.train.replica_device_setter(ps_tasks=2, worker_device="/job:worker/task:0")
    with tf.device(on_worker):
        hidden = images
        for name, filters in (("conv1", 16), ("conv2", 32)):
            with tf.variable_scope(name):
                kernel = _variable("kernel", (3, 3, int(hidden.shape[-1]), filters))
                bias = _variable("bias", (filters,))
                hidden = convolved(hidden, kernel, bias)
        with tf.variable_scope("dense"):
            hidden = tnp.reshape(hidden, (32, 7 * 7 * 32))
            logits = hidden @ _variable("kernel", (7 * 7 * 32, 10)) + _variable("bias", (10,))
        with tf.name_scope("loss"):
            loss = cross_entropy(logits, labels)
        train = tf.train.AdamOptimizer(1e-3).minimize(loss)
    return [train, loss], [images, labels]


def recommender() -> tuple[Any, list[Any]]:
    """A wide and deep recommender: an embedding in two shards, and a queue of examples."""
    with tf.device("/job:ps/task:0"):
        queue = tf.FIFOQueue(8, [tf.int32, tf.float32], [(64,), (64,)], shared_name="examples")
    partitioner = tf.fixed_size_partitioner(2)
    on_worker = tf.train.replica_device_setter(ps_tasks=2, worker_device="/job:worker/task:0")
    with tf.device(on_worker):
        ids, ratings = queue.dequeue()
        with tf.variable_scope("embedding", partitioner=partitioner):
            table = tf.get_variable("table", (10_000, 32), tf.float32)
        with tf.variable_scope("wide"):
            wide = tf.nn.embedding_lookup(_variable("weights", (10_000,)), ids)
        deep = tf.nn.embedding_lookup(table, ids)
        for name, width in (("hidden", 64), ("out", 1)):
            with tf.variable_scope(name):
                kernel = _variable("kernel", (int(deep.shape[-1]), width))
                deep = deep @ kernel + _variable("bias", (width,))
                deep = tf.nn.relu(deep) if width > 1 else deep
        with tf.name_scope("loss"):
            loss = tnp.mean((tnp.reshape(deep, (64,)) + wide - ratings) ** 2)
        train = tf.train.AdagradOptimizer(0.1).minimize(loss)
    return [train, loss], []


def towers() -> tuple[Any, list[Any]]:
    """A perceptron in two towers, whose gradients are averaged on the parameter server."""
    optimizer = tf.train.MomentumOptimizer(0.1, 0.9)
    gradients = []
    feeds = []
    for task in range(2):
        on_task = tf.train.replica_device_setter(
            ps_tasks=1, worker_device=f"/job:worker/task:{task}"
        )
        with (
            tf.device(on_task),
            tf.name_scope(f"tower{task}"),
            tf.variable_scope("model", reuse=task > 0),
        ):
            x = tf.placeholder(tf.float32, (64, 784), name="x")
            y = tf.placeholder(tf.int32, (64,), name="y")
            hidden = tf.nn.relu(x @ _variable("w1", (784, 256)) + _variable("b1", (256,)))
            logits = hidden @ _variable("w2", (256, 10)) + _variable("b2", (10,))
            loss = cross_entropy(logits, y)
            gradients.append(optimizer.compute_gradients(loss))
            feeds += [x, y]
    with tf.device("/job:ps/task:0"), tf.name_scope("average"):
        mean = [
            ((first + second) / 2, variable)
            for (first, variable), (second, _) in zip(*gradients, strict=True)
        ]
    return optimizer.apply_gradients(mean), feeds


class Block(linen.Module):
    """A block of a transformer."""

    @linen.compact
    def __call__(self, x: Any) -> Any:
        x = x + linen.MultiHeadDotProductAttention(num_heads=4)(linen.LayerNorm()(x))
        hidden = linen.Dense(4 * x.shape[-1])(linen.LayerNorm()(x))
        return x + linen.Dense(x.shape[-1])(linen.gelu(hidden))


class Transformer(linen.Module):
    """A small language model."""

    @linen.compact
    def __call__(self, tokens: Any) -> Any:
        x = linen.Embed(1000, 64)(tokens)
        for _ in range(2):
            x = Block()(x)
        return linen.Dense(1000)(linen.LayerNorm()(x))


def transformer() -> tuple[Any, tuple[Any, ...]]:
    """A Flax transformer with Optax' Adam, its variables on two parameter servers."""
    model = Transformer()
    tokens = np.zeros((8, 32), np.int32)
    initial = jax.eval_shape(model.init, jax.random.key(0), tokens)["params"]
    with tf.device(tf.train.replica_device_setter(ps_tasks=2)):
        params = _variables(jax.tree.map(lambda spec: jnp.zeros(spec.shape), initial))
    optimizer = tf.train.Optimizer(optax.adam(1e-3))
    variables = jax.tree.leaves(params)
    optimizer.build(variables)

    def loss_of(params: Any, tokens: Any) -> Any:
        logits = model.apply({"params": params}, tokens[:, :-1])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
        return losses.mean()

    @tf.function
    def train(tokens: Any) -> Any:
        with tf.device("/job:worker/task:0"):
            loss, grads = tf.value_and_grad(loss_of)(params, tokens)
        optimizer.apply_gradients(zip(jax.tree.leaves(grads), variables, strict=True))
        return loss

    return train, (tokens,)


def pipeline() -> tuple[Any, tuple[Any, ...]]:
    """An Equinox perceptron of two stages, each on a worker with its variables."""
    keys = jax.random.split(jax.random.key(0), 2)
    stages = [eqx.nn.MLP(64, 64, 128, 2, key=key) for key in keys]
    params = []
    static: list[Any] = []
    for task, stage in enumerate(stages):
        arrays, rest = eqx.partition(stage, eqx.is_inexact_array)
        static.append(rest)
        with tf.device(f"/job:worker/task:{task}"):
            params.append(_variables(arrays, f"stage{task}/"))
    optimizer = tf.train.Optimizer(optax.sgd(1e-2, momentum=0.9))
    variables = jax.tree.leaves(params)
    optimizer.build(variables)

    def loss_of(params: Any, x: Any, y: Any) -> Any:
        for task, arrays in enumerate(params):
            with tf.device(f"/job:worker/task:{task}"), jax.named_scope(f"stage{task}"):
                x = jax.vmap(eqx.combine(arrays, static[task]))(x)
        with tf.device("/job:worker/task:1"):
            return jnp.mean((x - y) ** 2)

    @tf.function
    def train(x: Any, y: Any) -> Any:
        loss, grads = tf.value_and_grad(loss_of)(params, x, y)
        optimizer.apply_gradients(zip(jax.tree.leaves(grads), variables, strict=True))
        return loss

    x = np.zeros((32, 64), np.float32)
    return train, (x, x)

"""What JAX users write for meshes does on a task what it does in one process."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jflow as tf
from tests.mesh.clusters import cluster as cluster

SQUARE = {"data": 2, "model": 2}
HERE = Mesh(
    np.array(jax.local_devices()[:4]).reshape(2, 2), ("data", "model"), (AxisType.Auto,) * 2
)
X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
W = np.cos(X)


def constrained(x, w):
    return jax.lax.with_sharding_constraint(jnp.sin(x) @ w, P("data", "model"))


def concrete(x, w):
    """Names devices of this process, of which the shape and the axes count."""
    return jax.lax.with_sharding_constraint(x @ w, NamedSharding(HERE, P("model", "data")))


def mapped(x, w):
    def product(x, w):
        return jax.lax.psum(x @ w, "model")

    specs = (P("data", "model"), P("model", None))
    return jax.shard_map(product, in_specs=specs, out_specs=P("data", None))(x, w)


def mapped_on_a_mesh(x, w):
    specs = (P("data", "model"), P("model", None))
    product = jax.shard_map(
        lambda x, w: jax.lax.psum(x @ w, "model"),
        mesh=HERE,
        in_specs=specs,
        out_specs=P("data", None),
    )
    return product(x, w)


def partly_mapped(x, w):
    def half(x):
        return jax.lax.with_sharding_constraint(x * jax.lax.axis_size("data"), P(None, "model"))

    return jax.shard_map(half, in_specs=P("data"), out_specs=P("data"), axis_names={"data"})(x) @ w


def collectives(x, w):
    def body(x):
        every = jax.lax.all_gather(x, "data", tiled=True)
        turned = jax.lax.ppermute(x, "data", [(0, 1), (1, 0)])
        scattered = jax.lax.psum_scatter(every, "data", tiled=True)
        exchanged = jax.lax.all_to_all(x, "data", 1, 0, tiled=True).reshape(x.shape)
        place = jax.lax.axis_index("data").astype(x.dtype)
        return turned + scattered + exchanged + place + jax.lax.pmax(x, "data")

    return jax.shard_map(body, in_specs=P("data"), out_specs=P("data"))(x) + w


def differentiated(x, w):
    return jax.grad(lambda w: jnp.mean(jnp.tanh(mapped(x, w)) ** 2))(w)


def vectorized(x, w):
    return jax.vmap(constrained)(jnp.stack([x, 2 * x]), jnp.stack([w, w]))


def checkpointed(x, w):
    return jax.grad(lambda w: jnp.sum(jax.checkpoint(constrained)(x, w) ** 2))(w)


def scanned(x, w):
    def body(carry, row):
        return constrained(jnp.tanh(carry), w) + row, jnp.sum(carry)

    return jax.lax.scan(body, x, jnp.arange(3.0))


def branching(x, w):
    return jax.lax.cond(jnp.sum(x) > -1, constrained, lambda x, w: x - w, x, w)


def until(x, w):
    return jax.lax.while_loop(lambda x: jnp.sum(jnp.abs(x)) < 100, lambda x: constrained(x, w), x)


def random(x, w):
    noise = jax.random.normal(jax.random.key(7), x.shape)
    return x + jax.lax.with_sharding_constraint(noise, P("data"))


def without_arguments(x, w):
    return jax.lax.with_sharding_constraint(jnp.arange(8.0) * 2, P("data")), jnp.ones((3, 3))


PROGRAMS: list[Callable[..., Any]] = [
    *(constrained, concrete, mapped, mapped_on_a_mesh, partly_mapped, collectives),
    *(differentiated, vectorized, checkpointed, scanned, branching, until, random),
    without_arguments,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("place", ["here", "on a task"])
def test_a_program_gives_what_it_gives_on_a_mesh_of_one_process(place, program, request):
    target = "" if place == "here" else request.getfixturevalue("cluster").target()
    where = "" if place == "here" else "/job:worker/task:1"

    @tf.function
    def on_mesh(x, w):
        with tf.device(where, mesh=HERE if program is mapped_on_a_mesh else SQUARE):
            return program(x, w)

    with jax.set_mesh(HERE):
        wanted = jax.tree.map(np.asarray, jax.jit(program)(X, W))
    with tf.connect(target):
        found = on_mesh(X, W)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("place", ["here", "on a task"])
def test_explicit_shardings_are_types(place, request):
    target = "" if place == "here" else request.getfixturevalue("cluster").target()
    mesh = AbstractMesh((2, 2), ("data", "model"), (AxisType.Explicit,) * 2)
    seen = []

    @tf.function
    def product(x, w):
        with tf.device("" if place == "here" else "/job:worker/task:1", mesh=mesh):
            x = jax.sharding.reshard(x, P("data", None))
            y = x @ jax.sharding.reshard(w, P(None, "model"))
            seen.append(jax.typeof(y).sharding.spec)
            return y * 2

    with tf.connect(target):
        np.testing.assert_allclose(product(X, W), X @ W * 2, rtol=1e-4, atol=1e-5)
    assert seen[0] == P("data", "model")


def test_a_loop_over_stages_each_on_a_mesh(cluster):
    """The MPMD of SPMD: iterations overlap over tasks, and each stage is on two devices."""
    stages = ["/job:worker/task:0", "/job:worker/task:1/device:MESH:1"]

    def layer(x, w):
        return jnp.tanh(jax.lax.with_sharding_constraint(x @ w, P(None, "model")))

    def loss(w, xs, place):
        def body(total, x):
            for stage in stages:
                with place(stage):
                    x = layer(x, w)
            return total + jnp.mean(x**2), jnp.sum(x)

        return jax.lax.scan(body, 0.0, xs)

    @tf.function
    def on_stages(w, xs):
        return jax.value_and_grad(loss, has_aux=True)(
            w, xs, lambda stage: tf.device(stage, mesh={"model": 2})
        )

    xs = np.stack([X * i / 5 for i in range(5)])
    here = Mesh(np.array(jax.local_devices()[:2]), ("model",), (AxisType.Auto,))
    with jax.set_mesh(here):
        wanted = jax.jit(jax.value_and_grad(loss, has_aux=True), static_argnums=2)(
            W, xs, lambda _: jax.named_scope("stage")
        )
    with tf.connect(cluster.target()):
        found = on_stages(W, xs)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def mixed(x, w):
    with tf.device(mesh={"data": 4}):
        y = jax.lax.with_sharding_constraint(jnp.sin(x) @ w, P("data"))
    z = jnp.matmul(y, w[0])
    with tf.device(mesh={"data": 2}):
        return y / (1 + z * z)


def test_values_cross_between_meshes_of_different_sizes():
    found = tf.function(mixed)(X, W)
    y = np.sin(X) @ W
    np.testing.assert_allclose(found, y / (1 + (y @ W[0]) ** 2), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "spec",
    [P("a"), P(("a", "b")), P(("b", "a")), P(None, "a"), P("a", "b"), P("b", "a"), P()],
    ids=str,
)
def test_values_of_any_sharding_cross_to_another_task(spec, cluster):
    value = np.arange(640 * 960, dtype=np.float32).reshape(640, 960)
    with tf.connect(cluster.target()):
        with tf.device("/job:worker/task:0", mesh={"a": 2, "b": 2}):
            v = tf.Variable(value, sharding=spec)

        @tf.function
        def step():
            with tf.device("/job:worker/task:0", mesh={"a": 2, "b": 2}):
                y = jax.lax.with_sharding_constraint(jnp.negative(v.value()), spec)
            with tf.device("/job:worker/task:1", mesh={"c": 2}):
                x = jax.lax.with_sharding_constraint(v.value(), P(None, "c"))
                return x + 0, y + 1

        for n in range(3):
            x, y = step()
            np.testing.assert_array_equal(x, value + n)
            np.testing.assert_array_equal(y, 1 - value - n)
            v.assign_add(np.ones_like(value))


def test_what_jax_cannot_differentiate_on_meshes_of_different_sizes_says_so():
    with pytest.raises(tf.errors.UnimplementedError, match="meshes of one size"):
        tf.function(jax.grad(lambda x, w: jnp.sum(mixed(x, w))))(X, W)
    with tf.Graph().as_default():
        x, w = tf.constant(X), tf.constant(W)
        with pytest.raises(tf.errors.UnimplementedError, match="meshes of one size"):
            tf.gradients(tf.function(mixed)(x, w), [x])

"""JAX's own settings around an equation count beside a device block as they do under `jax.jit`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.xla_metadata import set_xla_metadata
from jax.sharding import Mesh, PartitionSpec

import jflow as tf
from tests.clusters import Backend

Block = Callable[[], AbstractContextManager[Any]]
Program = Callable[[Block, Any], Any]

MESH = Mesh(np.array(jax.local_devices(backend="cpu")[:1]), ("x",))


def _bits(block: Block, key: Any) -> Any:
    with block():
        return jax.random.bits(key, (3,))


def _inside_of_a_call(block: Block, key: Any) -> Any:
    def call(key: Any) -> Any:
        with block():
            return jax.random.uniform(key, (3,))

    return jax.jit(call)(key)


def _in_a_loop(block: Block, key: Any) -> Any:
    def body(key: Any, _: Any) -> Any:
        with block():
            return key, jax.random.uniform(key, (3,))

    return jax.lax.scan(body, key, length=2)[1]


def _in_a_derivative(block: Block, key: Any) -> Any:
    def loss(x: Any) -> Any:
        with block():
            return (x * jax.random.uniform(key, (3,))).sum()

    return jax.grad(loss)(jnp.ones(3))


def _in_a_mesh_of_one_device(block: Block, key: Any) -> Any:
    def body(x: Any) -> Any:
        return x * 2 + jax.lax.psum(x, "x") + jax.random.uniform(key, x.shape)

    spec = PartitionSpec("x")
    mapped = jax.shard_map(body, mesh=MESH, in_specs=spec, out_specs=spec)
    with block():
        return jax.lax.with_sharding_constraint(
            mapped(jnp.arange(3.0)), jax.sharding.NamedSharding(MESH, spec)
        )


def _jitted_for_a_mesh_of_one_device(block: Block, key: Any) -> Any:
    everywhere = jax.sharding.NamedSharding(MESH, PartitionSpec())
    jitted = jax.jit(lambda x: x + 1, in_shardings=everywhere, out_shardings=everywhere)
    with block():
        return jitted(jax.random.uniform(key, (3,)))


PROGRAMS: dict[str, Program] = {
    "bits": _bits,
    "inside of a call": _inside_of_a_call,
    "in a loop": _in_a_loop,
    "in a derivative": _in_a_derivative,
}

MESHES: dict[str, Program] = {
    "in a mesh of one device": _in_a_mesh_of_one_device,
    "jitted for a mesh of one device": _jitted_for_a_mesh_of_one_device,
}


@contextmanager
def _other_bits() -> Iterator[None]:
    with jax.threefry_partitionable(False), set_xla_metadata(mine="yes"):
        yield


def _all(programs: dict[str, Program], setting: Block, device: Block, key: Any) -> dict[str, Any]:
    """The programs with a setting outside of their device block and inside of it."""

    @contextmanager
    def both() -> Iterator[None]:
        with device(), setting():
            yield

    found = {}
    for name, program in programs.items():
        with setting():
            found[f"{name}, setting outside"] = program(device, key)
        found[f"{name}, setting inside"] = program(both, key)
    return found


@pytest.mark.parametrize(
    ("programs", "setting"),
    [(PROGRAMS, _other_bits), (MESHES, nullcontext)],
    ids=["other random bits", "meshes"],
)
def test_a_setting_and_a_device_block_give_the_numbers_of_jit(
    connection: tf.function.Connection,
    backend: Backend,
    programs: dict[str, Program],
    setting: Block,
) -> None:
    key = jax.random.key(3)

    def on(device: Block) -> Callable[[Any], Any]:
        return lambda key: _all(programs, setting, device, key)

    found = tf.function(on(lambda: tf.device(backend.devices[-1])))(key)
    wanted = jax.jit(on(nullcontext))(key)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_a_setting_around_the_call_counts_too(
    connection: tf.function.Connection, backend: Backend
) -> None:
    def on(device: Block) -> Callable[[Any], Any]:
        return lambda key: _bits(device, key)

    placed, key = tf.function(on(lambda: tf.device(backend.devices[-1]))), jax.random.key(3)
    for setting in (nullcontext(), jax.threefry_partitionable(False)):
        with setting:
            np.testing.assert_array_equal(placed(key), jax.jit(on(nullcontext))(key))


def test_a_setting_counts_for_an_operation_of_a_graph(backend: Backend) -> None:
    key = jax.random.PRNGKey(3)
    with tf.Graph().as_default(), jax.threefry_partitionable(False), tf.device(backend.devices[-1]):
        bits = tf.random.bits(tf.constant(key), (3,))
        wanted = jax.random.bits(key, (3,))
        with backend.session() as session:
            np.testing.assert_array_equal(session.run(bits), wanted)

"""Values of devices in the memory of the host: without copies where the layout allows it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jflow.base.values import BlockArray
from jflow.plan.xla.hardware import mesh_on
from jflow.plan.xla.host_view import host_blocks, host_view

MESH = mesh_on((("x", 2), ("y", 2)), jax.local_devices()[:4])
X = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)


def sharded(*spec: Any) -> jax.Array:
    return jax.device_put(X, NamedSharding(MESH, P(*spec)))


def memory_of(value: jax.Array) -> set[int]:
    """The addresses of the parts of a value."""
    return {one.data.unsafe_buffer_pointer() for one in value.addressable_shards}


@pytest.mark.parametrize(
    ("spec", "n"), [(("x",), 2), (("y",), 2), ((("x", "y"),), 4), ((("y", "x"), None), 4)], ids=str
)
def test_rows_on_several_devices_are_blocks_of_their_memory(spec: tuple[Any, ...], n: int) -> None:
    value = sharded(*spec)
    got = host_blocks(value)
    assert isinstance(got, BlockArray)
    assert len(got.blocks) == n
    assert {block.ctypes.data for block in got.blocks} <= memory_of(value)
    np.testing.assert_array_equal(np.asarray(got), X)


@pytest.mark.parametrize("spec", [(None, "x"), ("x", "y"), (None, ("x", "y"))], ids=str)
def test_other_parts_are_gathered_in_one_copy(spec: tuple[Any, ...]) -> None:
    got = host_blocks(sharded(*spec))
    assert isinstance(got, np.ndarray)
    np.testing.assert_array_equal(got, X)


def test_rows_that_a_message_would_pad_are_gathered() -> None:
    value = jax.device_put(X[:, :3], NamedSharding(MESH, P(("x", "y"))))
    assert isinstance(host_blocks(value), BlockArray)
    value = jax.device_put(X[:60, :3], NamedSharding(MESH, P(("x", "y"))))
    got = host_blocks(value)
    assert isinstance(got, np.ndarray)
    np.testing.assert_array_equal(got, X[:60, :3])


def test_a_value_that_a_device_has_whole_is_a_view() -> None:
    for value in (sharded(), jax.device_put(X)):
        for view in (host_blocks(value), host_view(value)):
            assert isinstance(view, np.ndarray)
            assert view.ctypes.data in memory_of(value)


def test_an_array_in_several_buffers_cannot_be_viewed_as_one() -> None:
    with pytest.raises(ValueError, match="in several buffers"):
        np.asarray(BlockArray([X, X]), copy=False)


def test_blocks_that_a_message_would_pad_are_refused() -> None:
    with pytest.raises(ValueError, match="no multiple of 64 bytes"):
        BlockArray([X[:1, :3], X[:1, :3]])

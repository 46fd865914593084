"""What a program runs on: one device of JAX, or a mesh of several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import jax
import numpy as np
from jax.sharding import (
    AbstractMesh,
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec,
    Sharding,
    SingleDeviceSharding,
)

from jflow.base.cluster import Axes

DeviceOrMesh: TypeAlias = jax.Device | Mesh


def devices_of(one: DeviceOrMesh) -> Sequence[jax.Device]:
    """Returns the devices of a mesh in order, or a device alone."""
    return list(one.devices.flat) if isinstance(one, Mesh) else [one]


def first_device(one: DeviceOrMesh) -> jax.Device:
    """Returns a device, or the first of a mesh; all of them are of one kind."""
    return devices_of(one)[0]


def whole_on(one: DeviceOrMesh) -> Sharding:
    """Returns the sharding of an array that each of the devices has whole."""
    if isinstance(one, Mesh):
        return NamedSharding(one, PartitionSpec())
    return SingleDeviceSharding(one)


NO_MESH = AbstractMesh((), ())
"""A mesh without axes: that of what runs on one device."""


def mesh_of_axes(axes: Axes) -> AbstractMesh:
    """Returns the mesh of JAX with these axes, without devices."""
    names, sizes = zip(*axes, strict=True)
    return AbstractMesh(sizes, names, axis_types=(AxisType.Auto,) * len(names))


@contextmanager
def in_mesh(mesh: AbstractMesh) -> Iterator[None]:
    """Context manager in which a mesh is JAX's current one; `NO_MESH` means none.

    JAX lets no mesh of another size follow directly.
    """
    with jax.sharding.use_abstract_mesh(NO_MESH), jax.sharding.use_abstract_mesh(mesh):
        yield


def mesh_on(axes: Axes, devices: Sequence[jax.Device]) -> Mesh:
    """Returns the mesh of JAX with these axes and devices."""
    sizes = [size for _, size in axes]
    names = [name for name, _ in axes]
    arranged = np.asarray(devices, object).reshape(sizes)
    return Mesh(arranged, names, axis_types=(AxisType.Auto,) * len(names))

"""Serialization of programs, and digests of artifacts."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from typing import Any

import jax
import jax.export
import jax.extend.core as jex
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jflow.base.cluster import Axes
from jflow.base.values import Array, raw_bytes, type_name
from jflow.plan.xla import internals
from jflow.plan.xla.custom_calls import WITHOUT_GUARANTEE
from jflow.plan.xla.hardware import DeviceOrMesh, first_device, mesh_of_axes
from jflow.plan.xla.modules import check_module

_CHECKED_HERE = [*map(jax.export.DisabledSafetyCheck.custom_call, WITHOUT_GUARANTEE)]
"""JAX's own check of native calls, for those that `check_module` checks instead."""


_OPEN = PartitionSpec.UNCONSTRAINED


def digest_of(artifact: Array) -> str:
    """Returns the digest of a program (u8[n]) or constant: SHA-256 of dtype, shape and bytes."""
    digest = hashlib.sha256(f"{type_name(artifact)}{artifact.shape}".encode())
    digest.update(raw_bytes(artifact).data)
    return digest.hexdigest()


def export_platform(on: DeviceOrMesh) -> str:
    """Returns the `jax.export` platform of a device: "cpu", "cuda", "rocm" or "tpu"."""
    device = first_device(on)
    platform: str = device.platform
    if platform != "gpu":
        return platform
    return "rocm" if "rocm" in device.client.platform_version.lower() else "cuda"


def serialize(jaxpr: jex.ClosedJaxpr, platform: str, axes: Axes = ()) -> Array:
    """Serializes a program for one platform as u8[n]; equal programs give equal bytes.

    Args:
      jaxpr: a pure program, whose equations carry no source information.
      platform: from `export_platform`.
      axes: those of the mesh that it is for; empty for one device.

    Raises:
      InvalidArgumentError: if it calls a native function that servers do not allow.
      Exception: whatever JAX raises if it cannot export the program.
    """
    fun = jex.jaxpr_as_fun(jaxpr)

    def segment(*args: Any) -> Any:
        return fun(*args)

    shapes = [
        jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=_open_sharding(axes, aval))
        for aval in jaxpr.in_avals
    ]
    with internals.no_source_locations():
        exported = jax.export.export(
            jax.jit(segment, keep_unused=True),
            platforms=[platform],
            disabled_checks=_CHECKED_HERE,
        )
        program = exported(*shapes)
        if axes:
            program = internals.on_devices(program, math.prod(size for _, size in axes))
        if b"custom_call" in program.mlir_module_serialized:
            with internals.program_context():
                module = internals.parsed_program(program.mlir_module_serialized)
                check_module(module, sizes_known=False, n_devices=program.nr_devices)
        # Which checks are left out is a note for readers, and the same for all programs.
        unchecked_program = replace(program, disabled_safety_checks=())
        return np.frombuffer(unchecked_program.serialize(), np.uint8)


def _open_sharding(axes: Axes, aval: Any) -> NamedSharding | None:
    """Returns a sharding that tells JAX how many devices there are, and nothing else."""
    if not axes:
        return None
    return NamedSharding(mesh_of_axes(axes), PartitionSpec(*[_OPEN] * len(aval.shape)))

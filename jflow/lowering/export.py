"""Segments as bytes: StableHLO without anything that says who wrote it, where, or for which device.

The same program of two users, from two files, for two devices of one kind, must be the same bytes,
so that a server compiles it once. Source locations, name stacks and placement metadata are
therefore taken out of every equation before JAX lowers it.
"""

from __future__ import annotations

import hashlib
from typing import Any

import jax
import jax.export
import jax.extend.core as jex
import numpy as np

from jflow.graph import equations, internals, request
from jflow.graph.host import raw_bytes, type_name
from jflow.lowering.custom_calls import check_custom_calls


def digest_of(artifact: np.ndarray[Any, Any]) -> str:
    """The name of a program (as u8[n]) or a constant: SHA-256 of its type and bytes, in hex."""
    digest = hashlib.sha256(f"{type_name(artifact)}{artifact.shape}".encode())
    digest.update(raw_bytes(artifact).data)
    return digest.hexdigest()


def export_platform(device: jax.Device) -> str:
    """What `jax.export` calls the platform of a device: "cpu", "cuda", "rocm" or "tpu"."""
    platform: str = device.platform
    if platform != "gpu":
        return platform
    return "rocm" if "rocm" in device.client.platform_version.lower() else "cuda"


def export(jaxpr: jex.ClosedJaxpr, platform: str) -> np.ndarray[Any, Any]:
    """The program as u8[n] for one platform; equal programs give equal bytes.

    Args:
      jaxpr: a pure program.
      platform: as `export_platform` says it.

    Raises:
      InvalidArgumentError: if it calls a native function that no server takes.
      Exception: whatever JAX raises for what it cannot export; see `explained`.
    """
    bare = equations.Rewriting(_Stripper()).jaxpr(jaxpr.jaxpr)
    fun = jex.jaxpr_as_fun(jex.ClosedJaxpr(bare, jaxpr.consts))

    def segment(*args: Any) -> Any:
        return fun(*args)

    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in jaxpr.in_avals]
    with internals.no_source_locations():
        exported = jax.export.export(jax.jit(segment, keep_unused=True), platforms=[platform])
        program = exported(*shapes)
        if b"custom_call" in program.mlir_module_serialized:
            calls = internals.custom_calls(program.mlir_module())
            check_custom_calls(calls, sizes_known=False)
        return np.frombuffer(program.serialize(), np.uint8)


class _Stripper:
    """Takes the origin and the device request out of equations."""

    def __init__(self) -> None:
        # JAX makes equal contexts once, so there are few.
        self._contexts: dict[Any, Any] = {}

    def __call__(self, eqn: jex.JaxprEqn) -> jex.JaxprEqn:
        origin = eqn.source_info
        bare = origin.replace(traceback=None, name_stack=type(origin.name_stack)())
        stripped: jex.JaxprEqn = eqn.replace(source_info=bare, ctx=self._context(eqn.ctx))
        return stripped

    def _context(self, context: Any) -> Any:
        if context not in self._contexts:
            self._contexts[context] = request.context_with(context, None)
        return self._contexts[context]

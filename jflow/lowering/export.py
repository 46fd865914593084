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

from jflow.graph import internals, request
from jflow.graph.host import raw_bytes, type_name


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
    """
    fun = jex.jaxpr_as_fun(jex.ClosedJaxpr(_Stripper().jaxpr(jaxpr.jaxpr), jaxpr.consts))

    def segment(*args: Any) -> Any:
        return fun(*args)

    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in jaxpr.in_avals]
    with internals.no_source_locations():
        exported = jax.export.export(jax.jit(segment, keep_unused=True), platforms=[platform])
        return np.frombuffer(exported(*shapes).serialize(), np.uint8)


class _Stripper:
    """Rebuilds jaxprs, nested ones included, without origins; each nested one only once."""

    def __init__(self) -> None:
        self._done: dict[int, tuple[Any, Any]] = {}
        # JAX makes equal contexts once, so there are few.
        self._contexts: dict[Any, Any] = {}

    def jaxpr(self, jaxpr: jex.Jaxpr) -> jex.Jaxpr:
        if id(jaxpr) not in self._done:
            stripped = jaxpr.replace(eqns=[self._eqn(eqn) for eqn in jaxpr.eqns])
            # The original is kept too: its id must stay its own.
            self._done[id(jaxpr)] = (jaxpr, stripped)
        return self._done[id(jaxpr)][1]  # type: ignore[no-any-return]

    def _eqn(self, eqn: jex.JaxprEqn) -> jex.JaxprEqn:
        origin = eqn.source_info
        bare = origin.replace(traceback=None, name_stack=type(origin.name_stack)())
        params = {key: self._param(value) for key, value in eqn.params.items()}
        stripped: jex.JaxprEqn = eqn.replace(
            params=params, source_info=bare, ctx=self._context(eqn.ctx)
        )
        return stripped

    def _context(self, context: Any) -> Any:
        """The context without the request; without it nothing says where the program was to run."""
        if context not in self._contexts:
            self._contexts[context] = request.context_with(context, None)
        return self._contexts[context]

    def _param(self, value: Any) -> Any:
        if isinstance(value, jex.ClosedJaxpr):
            return jex.ClosedJaxpr(self.jaxpr(value.jaxpr), value.consts)
        if isinstance(value, jex.Jaxpr):
            return self.jaxpr(value)
        if isinstance(value, tuple | list) and type(value) in (tuple, list):
            return type(value)(self._param(item) for item in value)
        return value

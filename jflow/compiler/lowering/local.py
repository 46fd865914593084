"""Compilation of programs for this process, exported only if JAX requires it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np

from jflow.base.cluster import Axes
from jflow.compiler.lowering.explain import explained
from jflow.compiler.lowering.export import export
from jflow.compiler.lowering.segment import Lowered
from jflow.plan.xla import CompiledProgram, compile_exported, export_platform, inspected, jaxprs
from jflow.plan.xla.compilation import jitted
from jflow.plan.xla.hardware import DeviceOrMesh
from jflow.plan.xla.jaxprs import allow_64_bits, needs_64_bits
from jflow.plan.xla.validation import is_dynamic


def compile_all(
    programs: Sequence[tuple[Lowered, DeviceOrMesh, tuple[int, ...]]],
) -> list[CompiledProgram]:
    """Compiles programs for devices of this process, in parallel.

    Args:
      programs: each with its device and the positions of its donated arguments.

    Raises:
      OpError: with the operation that JAX cannot compile.
    """
    prepared = []
    for lowered, device, donated in programs:
        with explained(lowered.ops, export_platform(device), lowered.axes):
            prepared.append(_prepare(lowered.jaxpr, device, donated, lowered.axes))
    if len(prepared) == 1:
        return [prepared[0]()]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(lambda compile_: compile_(), prepared))


def _prepare(
    jaxpr: jex.ClosedJaxpr, device: DeviceOrMesh, donated: tuple[int, ...], axes: Axes
) -> Callable[[], CompiledProgram]:
    """Returns a function that compiles a program; any thread may call it."""
    if axes:
        return _exported(jaxpr, device, donated, axes)
    if not needs_64_bits(jaxpr.jaxpr):
        return _prepared(jaxpr, device, donated)
    with allow_64_bits(True):
        compile_ = _prepared(jaxpr, device, donated)

    def compiled() -> CompiledProgram:
        with allow_64_bits(True):
            return _wide(compile_(), [aval.dtype for aval in jaxpr.in_avals])

    return compiled


def _wide(program: CompiledProgram, dtypes: Sequence[Any]) -> CompiledProgram:
    """Wraps a program so that it runs with 64-bit types even if the calling thread disables them.

    JAX would take a NumPy array or number of 64 bits as it is; what it narrows elsewhere is
    narrowed here.
    """

    def call(*args: Any) -> list[jax.Array]:
        with allow_64_bits(True):
            return program(*map(_narrowed, args, dtypes))

    return call


def _narrowed(value: Any, dtype: Any) -> Any:
    return value if isinstance(value, jax.Array) else np.asarray(value, dtype)


def _exported(
    jaxpr: jex.ClosedJaxpr, device: DeviceOrMesh, donated: tuple[int, ...], axes: Axes = ()
) -> Callable[[], CompiledProgram]:
    data = export(jaxpr, export_platform(device), axes).tobytes()
    return lambda: compile_exported(inspected(data), device, donated)


def _prepared(
    jaxpr: jex.ClosedJaxpr, device: DeviceOrMesh, donated: tuple[int, ...]
) -> Callable[[], CompiledProgram]:
    if is_dynamic(jaxpr.in_avals):
        # JAX compiles programs of symbolic sizes only once they are exported.
        return _exported(jaxpr, device, donated)
    program = jitted(jex.jaxpr_as_fun(jaxpr), device, donated)
    lowered = program.lower(*map(jaxprs.shape_of, jaxpr.in_avals))

    def compiled() -> CompiledProgram:
        # JAX caches the compilation for the jitted function, whose calls are faster than those
        # of the compiled object.
        lowered.compile()
        executable: CompiledProgram = program
        return executable

    return compiled

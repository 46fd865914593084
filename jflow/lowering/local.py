"""Programs that run in the process that makes them, exported only where JAX requires it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.extend.core as jex

from jflow.lowering.explain import explained
from jflow.lowering.export import export
from jflow.lowering.segment import Lowered
from jflow.xla import CompiledProgram, compile_exported, export_platform, jaxprs
from jflow.xla.compile import is_dynamic, jitted


def compile_all(
    programs: Sequence[tuple[Lowered, jax.Device, tuple[int, ...]]],
) -> list[CompiledProgram]:
    """Compiles programs for devices of this process, several at the same time.

    Args:
      programs: each with its device, and the numbers of the arguments that it may overwrite.

    Raises:
      OpError: names the operation that JAX cannot compile.
    """
    prepared = []
    for lowered, device, donated in programs:
        with explained(lowered.ops, export_platform(device)):
            prepared.append(_prepare(lowered.jaxpr, device, donated))
    if len(prepared) == 1:
        return [prepared[0]()]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(lambda compile_: compile_(), prepared))


def compile_jaxpr(
    jaxpr: jex.ClosedJaxpr, device: jax.Device, donated: tuple[int, ...]
) -> CompiledProgram:
    """Compiles a program of this process."""
    return _prepare(jaxpr, device, donated)()


def _prepare(
    jaxpr: jex.ClosedJaxpr, device: jax.Device, donated: tuple[int, ...]
) -> Callable[[], CompiledProgram]:
    """What compiles a program of this process; any thread may call it."""
    if is_dynamic(jaxpr.in_avals):
        # JAX compiles for symbols only what it has exported.
        data = export(jaxpr, export_platform(device)).tobytes()
        return lambda: compile_exported(data, device, donated)
    program = jitted(jex.jaxpr_as_fun(jaxpr), device, donated)
    lowered = program.lower(*map(jaxprs.shape_of, jaxpr.in_avals))

    def compiled() -> CompiledProgram:
        # JAX keeps what this compiles for the function, whose calls are quicker than its result's.
        lowered.compile()
        executable: CompiledProgram = program
        return executable

    return compiled

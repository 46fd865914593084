"""Programs that run in the process that makes them, exported only where JAX wants it."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.extend.core as jex

from jflow.lowering.export import export
from jflow.xla import Executable, compile_exported, export_platform, jaxprs
from jflow.xla.compile import is_dynamic, jitted


def prepare(
    jaxpr: jex.ClosedJaxpr, device: jax.Device, donated: tuple[int, ...]
) -> Callable[[], Executable]:
    """What compiles a program of this process; any thread may call it."""
    if is_dynamic(jaxpr.in_avals):
        # JAX compiles for symbols only what it has exported.
        data = export(jaxpr, export_platform(device)).tobytes()
        return lambda: compile_exported(data, device, donated)
    program = jitted(jex.jaxpr_as_fun(jaxpr), device, donated)
    lowered = program.lower(*map(jaxprs.shape_of, jaxpr.in_avals))

    def compiled() -> Executable:
        # JAX keeps what this compiles for the function, whose calls are quicker than its result's.
        lowered.compile()
        executable: Executable = program
        return executable

    return compiled


def compile_jaxpr(
    jaxpr: jex.ClosedJaxpr, device: jax.Device, donated: tuple[int, ...]
) -> Executable:
    """Compiles a program of this process."""
    return prepare(jaxpr, device, donated)()

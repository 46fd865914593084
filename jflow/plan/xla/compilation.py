"""`CompileRequest`: a program and what it is compiled for; `compile_here` compiles it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import jax.export
from jax.sharding import Mesh, Sharding, SingleDeviceSharding

from jflow.plan.xla import internals
from jflow.plan.xla.hardware import DeviceOrMesh
from jflow.plan.xla.modules import check_module
from jflow.plan.xla.validation import ValidProgram

Sizes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class CompileRequest:
    """A program and what it is compiled for.

    Attributes:
      valid: the program.
      exported: the same, deserialized.
      on: the device or mesh.
      donated: the positions of the donated arguments.
      sizes: of its arguments, if it is for any.
      shardings: of its arguments, on a mesh; None of those that XLA distributes.
      kept: on a mesh, the shardings of its first results; None where XLA chooses.
    """

    valid: ValidProgram
    exported: jax.export.Exported
    on: DeviceOrMesh
    donated: tuple[int, ...]
    sizes: Sizes | None = None
    shardings: tuple[Sharding | None, ...] = ()
    kept: tuple[Sharding | None, ...] = ()

    def shapes(self) -> list[jax.ShapeDtypeStruct]:
        """Returns the shapes, types and shardings of its arguments."""
        avals = self.exported.in_avals
        sizes = self.sizes or [aval.shape for aval in avals]
        shardings = self.shardings or [None] * len(avals)
        return [
            jax.ShapeDtypeStruct(size, aval.dtype, sharding=sharding)
            for aval, size, sharding in zip(avals, sizes, shardings, strict=True)
        ]


Compile = Callable[[CompileRequest], Any]
"""Compiles a program; the result refuses arguments of other types, as `jax.stages.Compiled`.

It raises OpError if it says itself what was wrong, and any other error of JAX.
"""


def compile_here(request: CompileRequest) -> Any:
    """Compiles a program in this thread, for 64-bit types if these are enabled; see `Compile`."""
    exported, on = request.exported, request.on
    if isinstance(on, Mesh):
        results = [*request.kept, *[None] * (len(exported.out_avals) - len(request.kept))]
        program = _jitted(exported.call, request.donated, out_shardings=results)
    else:
        program = jitted(exported.call, on, request.donated)
    with jax.set_mesh(on) if isinstance(on, Mesh) else nullcontext():
        lowered = program.lower(*request.shapes())
        if request.sizes is not None:
            refined = internals.refined_program(lowered)
            n_devices = on.size if isinstance(on, Mesh) else 1
            with refined.context:
                check_module(refined, sizes_known=True, is_refined=True, n_devices=n_devices)
        return lowered.compile()


def jitted(fun: Callable[..., Any], device: jax.Device, donated: tuple[int, ...]) -> Any:
    """Returns `fun` jitted for one device."""
    here = SingleDeviceSharding(device)
    return _jitted(fun, donated, in_shardings=here, out_shardings=here)


def _jitted(fun: Callable[..., Any], donated: Sequence[int], **shardings: Any) -> Any:
    return jax.jit(fun, keep_unused=True, donate_argnums=donated, **shardings)

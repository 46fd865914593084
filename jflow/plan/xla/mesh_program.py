"""`MeshProgram`: a program that runs on all devices of a mesh together.

A program says what it computes, and not how its arguments are sharded: variables keep the
shardings that they have, and XLA chooses those of other values. It is therefore compiled when it
is first called with arguments of such shardings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import jax.export
import numpy as np
from jax.sharding import Mesh, NamedSharding, Sharding, SingleDeviceSharding

from jflow.errors import InvalidArgumentError
from jflow.plan.xla import internals
from jflow.plan.xla.host_view import host_view
from jflow.plan.xla.modules import check_module
from jflow.plan.xla.validation import ValidProgram, is_dynamic

_N_COMPILED = 64
"""How many compiled forms of a program are kept: for shardings, and for sizes."""

Kept = Sequence[Sharding | None]
"""The shardings of the first results; None where XLA chooses."""


class MeshProgram:
    """A program exported for as many devices as a mesh has.

    It may only be called by what has all devices of the mesh for itself, one call at a time: its
    parts wait for each other, and XLA ends the process if one of them comes 40 s late.

    Args:
      valid: the program.
      mesh: the mesh.
      donated: the positions of the donated arguments.
    """

    def __init__(self, valid: ValidProgram, mesh: Mesh, donated: tuple[int, ...]) -> None:
        self._exported = jax.export.deserialize(bytearray(valid.data))
        if self._exported.nr_devices != mesh.size:
            raise InvalidArgumentError(
                f"a program is for {self._exported.nr_devices} devices, but the mesh {mesh} has "
                f"{mesh.size}"
            )
        self._mesh = mesh
        self._donated = donated
        self._is_dynamic = is_dynamic(self._exported.in_avals)
        self._compiled: dict[Any, Any] = {}

    def __call__(self, *args: Any, kept: Kept = ()) -> list[jax.Array]:
        """Runs the program until its results are computed.

        Args:
          args: arrays; those of NumPy, and of other devices, are distributed as XLA has chosen.
          kept: the shardings of its first results; see `Kept`.

        Raises:
          InvalidArgumentError: if XLA cannot compile it for these shardings.
          TypeError: if an argument is of another type or shape than the program expects.
        """
        own = [*map(self._own, args, self._exported.in_avals)]
        with jax.enable_x64(True):
            executable = self._for(own, tuple(kept))
            _wait_until_idle(self._mesh)
            results: list[jax.Array] = executable(*own)
        for result in results:
            result.block_until_ready()
        return results

    def _own(self, value: Any, aval: Any) -> Any:
        """Returns an argument that is on the mesh, or on the host."""
        if isinstance(value, jax.Array):
            return value if self._has(value) else host_view(value)
        if not isinstance(value, np.ndarray | np.generic):
            return np.asarray(value, aval.dtype)  # a number of Python
        # What JAX narrows on this thread is narrowed here.
        narrow = jax.dtypes.canonicalize_dtype(value.dtype) == aval.dtype
        return value.astype(aval.dtype, copy=False) if narrow else value

    def _has(self, value: jax.Array) -> bool:
        sharding = value.sharding
        return isinstance(sharding, NamedSharding) and sharding.mesh == self._mesh

    def _for(self, args: Sequence[Any], kept: tuple[Sharding | None, ...]) -> Any:
        """Returns the executable for arguments of these shardings."""
        shardings = tuple(x.sharding if isinstance(x, jax.Array) else None for x in args)
        sizes = tuple(x.shape for x in args) if self._is_dynamic else ()
        key = shardings, kept, sizes
        executable = self._compiled.pop(key, None) or self._compile(args, shardings, kept)
        self._compiled[key] = executable  # the last one that was used
        if len(self._compiled) > _N_COMPILED:
            del self._compiled[next(iter(self._compiled))]
        return executable

    def _compile(
        self,
        args: Sequence[Any],
        shardings: Sequence[Sharding | None],
        kept: tuple[Sharding | None, ...],
    ) -> Any:
        exported = self._exported
        results = [*kept, *[None] * (len(exported.out_avals) - len(kept))]
        program = jax.jit(
            exported.call,
            keep_unused=True,
            donate_argnums=self._donated,
            out_shardings=results,
        )
        shapes = [
            jax.ShapeDtypeStruct(
                x.shape if self._is_dynamic else aval.shape, aval.dtype, sharding=s
            )
            for x, aval, s in zip(args, exported.in_avals, shardings, strict=True)
        ]
        try:
            with jax.set_mesh(self._mesh):
                lowered = program.lower(*shapes)
                if self._is_dynamic:
                    refined = internals.refined_program(lowered)
                    with refined.context:
                        check_module(
                            refined, sizes_known=True, is_refined=True, n_devices=self._mesh.size
                        )
                return lowered.compile()
        except Exception as error:
            # JAX raises many kinds of errors, and the program may come from another process.
            raise InvalidArgumentError(
                f"a program cannot be compiled for the mesh {self._mesh} with arguments sharded as "
                f"{[getattr(one, 'spec', one) for one in shardings]}: {error}"
            ) from error


def _wait_until_idle(mesh: Mesh) -> None:
    """Waits until the devices have done what this thread gave them before, which is in order.

    Programs of other threads have kept the devices until they were computed.
    """
    jax.block_until_ready([_probe(device)() for device in mesh.devices.flat])


@lru_cache(maxsize=256)
def _probe(device: jax.Device) -> Callable[[], Any]:
    """Returns a function that gives a device something very small to do."""
    here = SingleDeviceSharding(device)
    value = jax.device_put(np.zeros((), np.int32), here)
    program = jax.jit(lambda x: x + 1, in_shardings=here, out_shardings=here)
    return partial(program.lower(value).compile(), value)

"""`MeshProgram`: a program that runs on all devices of a mesh together.

A program says what it computes, and not how its arguments are sharded: variables keep the
shardings that they have, and XLA chooses those of other values. It is therefore compiled when there
are first arguments of such shardings, which takes long and needs no device: before it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.export
import numpy as np
from jax.sharding import Mesh, NamedSharding, Sharding, SingleDeviceSharding

from jflow.errors import DeadlineExceededError, InternalError, InvalidArgumentError
from jflow.plan.xla.compilation import Compile, CompileRequest, compile_here
from jflow.plan.xla.host_view import host_view
from jflow.plan.xla.shared_cache import SharedCache
from jflow.plan.xla.validation import ValidProgram, is_dynamic

N_COMPILED = 64
"""How many compiled forms of a program are kept: for shardings, and for sizes."""

Kept = Sequence[Sharding | None]
"""The shardings of the first results; None where XLA chooses."""


@dataclass(frozen=True)
class _Form:
    """What a program is compiled for.

    Attributes:
      shardings: of its arguments; None of those that are not on the mesh, which XLA distributes.
      kept: see `Kept`.
      sizes: of its arguments, if it is for any.
    """

    shardings: tuple[Sharding | None, ...]
    kept: tuple[Sharding | None, ...]
    sizes: tuple[tuple[int, ...], ...] | None


class Compilation(NamedTuple):
    """What compiles a program, which any thread may do.

    Attributes:
      future: done when another thread has compiled it; None if no thread compiles it.
      make: compiles it, or waits for the other thread; raises InvalidArgumentError as a call does.
    """

    future: Future[Any] | None
    make: Callable[[], object]


class MeshProgram:
    """A program exported for as many devices as a mesh has.

    It may only be called by what has all devices of the mesh for itself, one call at a time: its
    parts wait for each other, and XLA ends the process if one of them comes 40 s late. Any thread
    may compile it meanwhile.

    Args:
      valid: the program.
      mesh: the mesh.
      donated: the positions of the donated arguments.
      compiled_by: what compiles it.
    """

    def __init__(
        self,
        valid: ValidProgram,
        mesh: Mesh,
        donated: tuple[int, ...],
        compiled_by: Compile = compile_here,
    ) -> None:
        self._valid = valid
        self._compiled_by = compiled_by
        self._exported = jax.export.deserialize(bytearray(valid.data))
        if self._exported.nr_devices != mesh.size:
            raise InvalidArgumentError(
                f"a program is for {self._exported.nr_devices} devices, but the mesh {mesh} has "
                f"{mesh.size}"
            )
        self._mesh = mesh
        self._donated = donated
        self._is_dynamic = is_dynamic(self._exported.in_avals)
        self._compiled: SharedCache[_Form, Any] = SharedCache(N_COMPILED)

    def compilation(self, *args: Any, kept: Kept = ()) -> Compilation | None:
        """Returns the compilation for such arguments; None if the program is compiled for them.

        Args:
          args, kept: as for a call. Only the sizes and shardings of arguments count.
        """
        form = self._form(args, kept)
        future = self._compiled.future_of(form)
        if future is not None and future.done():
            return None
        return Compilation(future, partial(self._executable, form))

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
        executable = self._executable(self._form(args, kept))
        with jax.enable_x64(True):
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

    def _form(self, args: Sequence[Any], kept: Kept) -> _Form:
        own = (x.sharding if isinstance(x, jax.Array) and self._has(x) else None for x in args)
        sizes = tuple(map(np.shape, args)) if self._is_dynamic else None
        return _Form(tuple(own), tuple(kept), sizes)

    def _executable(self, form: _Form) -> Any:
        """Returns the program as compiled for a form; it is compiled once."""
        return self._compiled.get(form, partial(self._compile, form))

    def _compile(self, form: _Form) -> Any:
        request = CompileRequest(
            self._valid,
            self._exported,
            self._mesh,
            self._donated,
            form.sizes,
            form.shardings,
            form.kept,
        )
        try:
            with jax.enable_x64(True):
                return self._compiled_by(request)
        except (DeadlineExceededError, InternalError):
            raise
        except Exception as error:
            # JAX raises many kinds of errors, and the program may come from another process.
            raise InvalidArgumentError(
                f"a program cannot be compiled for the mesh {self._mesh} with arguments sharded as "
                f"{[getattr(one, 'spec', one) for one in form.shardings]}: {error}"
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

"""Compilation of programs to executables for a device, or a mesh, of this process."""

from __future__ import annotations

import math
import re
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.export
import numpy as np

from jflow.errors import InvalidArgumentError, OpError
from jflow.plan.xla import internals
from jflow.plan.xla.compilation import Compile, CompileRequest, Sizes, compile_here, jitted
from jflow.plan.xla.hardware import DeviceOrMesh
from jflow.plan.xla.mesh_program import N_COMPILED, MeshProgram
from jflow.plan.xla.modules import check_module
from jflow.plan.xla.shared_cache import SharedCache
from jflow.plan.xla.validation import ValidProgram, is_dynamic

_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')

CompiledProgram = Callable[..., list[jax.Array]]
"""Takes JAX or NumPy arrays, returns arrays on its device, and consumes donated arguments."""

_MAX_TRIPS = 1000
"""Loops in branches count as bounded up to this number of iterations."""

_IMPURE: weakref.WeakSet[Any] = weakref.WeakSet()

_BOUNDED: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def is_bounded(executable: CompiledProgram) -> bool:
    """Whether a program's run time depends little on the values of its arguments.

    It is not bounded if a loop ends on a computed condition, or is long and inside a branch.
    """
    return _BOUNDED.get(executable, True)


def result_bytes(executable: CompiledProgram) -> list[int]:
    """Returns the bytes of each result; nothing if they depend on the arguments."""
    results = jax.tree.leaves(getattr(executable, "out_info", ()))
    return [math.prod(one.shape) * np.dtype(one.dtype).itemsize for one in results]


@dataclass(frozen=True)
class ProgramMemory:
    """The memory of a device that a program needs while it runs, in bytes.

    Attributes:
      arguments, results: as given to it and returned; results may take the place of arguments.
      temporary: what it uses meanwhile.
      total: all that is there at one time.
    """

    arguments: int
    results: int
    temporary: int
    total: int


def memory_of(executable: CompiledProgram) -> ProgramMemory | None:
    """Returns the memory that a program needs; None if that depends on its arguments."""
    analyse = getattr(executable, "memory_analysis", None)
    found = None if analyse is None else analyse()
    if found is None:
        return None
    sizes = (
        found.argument_size_in_bytes,
        found.output_size_in_bytes,
        found.temp_size_in_bytes,
    )
    return ProgramMemory(*sizes, sum(sizes) - found.alias_size_in_bytes)


def is_pure(executable: CompiledProgram) -> bool:
    """Whether a program is deterministic: equal arguments give equal results."""
    return executable not in _IMPURE


def _loops_are_bounded(hlo: str) -> bool:
    loops = [line for line in hlo.splitlines() if " while(" in line]
    trips = [_TRIPS.search(line) for line in loops]
    if None in trips:
        return False
    has_branches = " conditional(" in hlo
    return not has_branches or all(found and int(found[1]) <= _MAX_TRIPS for found in trips)


def compile_exported(
    valid: ValidProgram,
    device: DeviceOrMesh,
    donated: tuple[int, ...],
    compiled_by: Compile = compile_here,
) -> CompiledProgram:
    """Compiles a program that was exported in this or another process.

    One for a mesh is compiled when it is called; see `MeshProgram`. One of symbolic sizes is
    compiled when it is called, too, again for each new size.

    Args:
      valid: the program.
      device: the device or mesh.
      donated: the positions of the donated arguments.
      compiled_by: what compiles it.

    Raises:
      InvalidArgumentError: if it is for another platform, or XLA refuses it.
      DeadlineExceededError, InternalError: as `compiled_by`.
    """
    with _refused(valid, device):
        if isinstance(device, jax.sharding.Mesh):
            on_mesh = MeshProgram(valid, device, donated, compiled_by)
            # No estimate of its time counts: it waits for all devices of the mesh.
            _note(on_mesh, valid, is_bounded=False)
            return on_mesh
        exported = jax.export.deserialize(bytearray(valid.data))
        request = CompileRequest(valid, exported, device, donated)
        if is_dynamic(exported.in_avals):
            return _dynamic(request, compiled_by)
        # An ahead-of-time executable refuses arguments of other types that a client may send.
        executable: Any = compiled_by(request)
        bounded = not valid.facts.has_loops or _loops_are_bounded(executable.as_text())
        _note(executable, valid, is_bounded=bounded)
    return executable  # type: ignore[no-any-return]


def _dynamic(request: CompileRequest, compiled_by: Compile) -> CompiledProgram:
    """Returns a program of symbolic sizes, which is compiled for each new size."""
    valid, device = request.valid, request.on
    if compiled_by is not compile_here:
        by_size = _BySize(request, compiled_by)
        # What calls it must be able to wait: for a process that compiles other programs, too.
        _note(by_size, valid, is_bounded=False)
        return by_size
    assert isinstance(device, jax.Device)
    # JAX checks the types of arguments.
    dynamic = _checked(jitted(request.exported.call, device, request.donated))
    _note(dynamic, valid, is_bounded=not valid.facts.has_loops)
    return dynamic


class _BySize:
    """A program of symbolic sizes for one device that something else than JAX's jit compiles."""

    def __init__(self, request: CompileRequest, compiled_by: Compile) -> None:
        self._request = request
        self._compiled_by = compiled_by
        self._compiled: SharedCache[Sizes, CompiledProgram] = SharedCache(N_COMPILED)

    def __call__(self, *args: Any) -> list[jax.Array]:
        """Runs the program. Raises as `compile_exported`, and TypeError for other arguments."""
        sizes = tuple(map(np.shape, args))
        return self._compiled.get(sizes, lambda: self._compile(sizes))(*args)

    def _compile(self, sizes: Sizes) -> CompiledProgram:
        request = replace(self._request, sizes=sizes)
        with _refused(request.valid, request.on):
            compiled: CompiledProgram = self._compiled_by(request)
        return compiled


@contextmanager
def _refused(valid: ValidProgram, device: DeviceOrMesh) -> Iterator[None]:
    """Context manager for a compilation, whose errors become InvalidArgumentError.

    The program may come from another process; JAX raises many kinds of errors for bad ones.
    """
    try:
        yield
    except OpError:
        raise
    except Exception as error:
        raise InvalidArgumentError(
            f"a program of {len(valid.data)} bytes cannot be compiled for {device}: {error}"
        ) from error


def _note(executable: CompiledProgram, valid: ValidProgram, *, is_bounded: bool) -> None:
    _BOUNDED[executable] = is_bounded
    if not valid.facts.is_pure:
        _IMPURE.add(executable)


def _checked(program: Any) -> CompiledProgram:
    """Wraps a program of symbolic sizes to check sizes and native calls at each new size."""
    checked_shapes: set[Any] = set()

    def call(*args: Any) -> list[jax.Array]:
        shapes = tuple(arg.shape for arg in args)
        if shapes not in checked_shapes:
            refined = internals.refined_program(program.lower(*args))
            with refined.context:
                check_module(refined, sizes_known=True, is_refined=True)
            checked_shapes.add(shapes)
        results: list[jax.Array] = program(*args)
        return results

    return call

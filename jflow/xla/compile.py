"""Compilation of programs to executables for one device of this process."""

from __future__ import annotations

import math
import re
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.export
import numpy as np

from jflow.errors import InvalidArgumentError, OpError
from jflow.xla import internals
from jflow.xla.custom_calls import check_custom_calls, is_native

_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')

CompiledProgram = Callable[..., list[jax.Array]]
"""Takes JAX or NumPy arrays, returns arrays on its device, and consumes donated arguments."""

_MAX_TRIPS = 1000
"""Loops in branches count as bounded up to this number of iterations."""

_IMPURITY = re.compile(r"stablehlo\.(rng|infeed|outfeed|recv|send)\b")
"""What XLA can do beside functions of its arguments. Native functions are pure: only those of
`custom_calls` may be called."""

_IMPURE: weakref.WeakSet[Any] = weakref.WeakSet()

_BOUNDED: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def is_bounded(executable: CompiledProgram) -> bool:
    """Whether a program's run time depends little on the values of its arguments.

    It is not bounded if a loop ends on a computed condition, or is long and inside a branch.
    """
    return _BOUNDED.get(executable, True)


def result_bytes(executable: CompiledProgram) -> list[int]:
    """The size of each of its results, in bytes; nothing if they depend on the arguments."""
    results = getattr(executable, "out_info", ())
    return [math.prod(one.shape) * np.dtype(one.dtype).itemsize for one in results]


def is_pure(executable: CompiledProgram) -> bool:
    """Whether a program gives the same results whenever it is given the same arguments."""
    return executable not in _IMPURE


def _loops_are_bounded(hlo: str) -> bool:
    loops = [line for line in hlo.splitlines() if " while(" in line]
    trips = [_TRIPS.search(line) for line in loops]
    if None in trips:
        return False
    has_branches = " conditional(" in hlo
    return not has_branches or all(found and int(found[1]) <= _MAX_TRIPS for found in trips)


def compile_exported(data: bytes, device: jax.Device, donated: tuple[int, ...]) -> CompiledProgram:
    """Compiles a program that `export` has made in this or another process.

    Raises:
      InvalidArgumentError: if the bytes are not a program, or it is for another platform.
    """
    try:
        exported = jax.export.deserialize(bytearray(data))
        has_symbols = is_dynamic(exported.in_avals)
        text = exported.mlir_module()
        calls = _custom_calls(text)
        check_custom_calls(calls, sizes_known=not has_symbols)
        has_loops = "stablehlo.while" in text
        program = jitted(exported.call, device, donated)
        if has_symbols:
            # Compiled again for each new size; JAX checks the types of arguments.
            dynamic: CompiledProgram = _checked(program) if any(map(is_native, calls)) else program
            _BOUNDED[dynamic] = not has_loops
            _note_purity(dynamic, text)
            return dynamic
        # An ahead-of-time executable refuses arguments of other types that a client may send.
        executable: CompiledProgram = program.lower(*_shapes(exported.in_avals)).compile()
        if has_loops:
            _BOUNDED[executable] = _loops_are_bounded(executable.as_text())  # type: ignore[attr-defined]
        _note_purity(executable, text)
        return executable
    except OpError:
        raise
    except Exception as error:
        # The bytes may come from another process; JAX raises many kinds of errors for bad ones.
        raise InvalidArgumentError(
            f"a program of {len(data)} bytes cannot be compiled for {device}: {error}"
        ) from error


def _note_purity(executable: CompiledProgram, text: str) -> None:
    if _IMPURITY.search(text):
        _IMPURE.add(executable)


def _custom_calls(program: str) -> list[internals.CustomCall]:
    # Most programs have none and need not be parsed.
    return internals.custom_calls(program) if "custom_call" in program else []


def _checked(program: Any) -> CompiledProgram:
    """Wraps a program of symbolic sizes to check its native calls for each new size."""
    known: set[Any] = set()

    def call(*args: Any) -> list[jax.Array]:
        shapes = tuple(arg.shape for arg in args)
        if shapes not in known:
            check_custom_calls(internals.custom_calls_for_sizes(program.lower(*args)))
            known.add(shapes)
        results: list[jax.Array] = program(*args)
        return results

    return call


def jitted(fun: Callable[..., Any], device: jax.Device, donated: tuple[int, ...]) -> Any:
    """Returns `fun` under `jax.jit` for one device."""
    here = jax.sharding.SingleDeviceSharding(device)
    return jax.jit(
        fun,
        keep_unused=True,
        donate_argnums=donated,
        in_shardings=here,
        out_shardings=here,
    )


def is_dynamic(avals: Sequence[Any]) -> bool:
    """Whether a program takes arrays of unknown sizes."""
    return any(jax.export.is_symbolic_dim(dim) for aval in avals for dim in aval.shape)


def _shapes(avals: Sequence[Any]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]

"""From programs to executables on one device of this process."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.export
import jax.extend.core as jex

from jflow.errors import InvalidArgumentError, OpError
from jflow.graph import equations, internals
from jflow.lowering.export import export, export_platform

_CUSTOM_CALL = re.compile(r'stablehlo\.custom_call @(?:"([^"]*)"|([\w.$-]+))')

Executable = Callable[..., list[jax.Array]]
"""Takes arrays or NumPy arrays and gives arrays on its device; donated arguments are used up."""


def prepare(
    jaxpr: jex.ClosedJaxpr, device: jax.Device, donated: tuple[int, ...]
) -> Callable[[], Executable]:
    """What compiles a program of this process; any thread may call it."""
    if _is_dynamic(jaxpr.in_avals):
        # JAX compiles for symbols only what it has exported.
        data = export(jaxpr, export_platform(device)).tobytes()
        return lambda: compile_exported(data, device, donated)
    jitted = _jitted(jex.jaxpr_as_fun(jaxpr), device, donated)
    lowered = jitted.lower(*map(equations.shape_of, jaxpr.in_avals))

    def compiled() -> Executable:
        # JAX keeps what this compiles for the function, whose calls are quicker than its result's.
        lowered.compile()
        executable: Executable = jitted
        return executable

    return compiled


def compile_jaxpr(
    jaxpr: jex.ClosedJaxpr, device: jax.Device, donated: tuple[int, ...]
) -> Executable:
    """Compiles a program of this process."""
    return prepare(jaxpr, device, donated)()


def compile_exported(data: bytes, device: jax.Device, donated: tuple[int, ...]) -> Executable:
    """Compiles a program that `export` made, here or elsewhere.

    Raises:
      InvalidArgumentError: if the bytes are no such program or are for another platform.
    """
    try:
        exported = jax.export.deserialize(bytearray(data))
        _check_custom_calls(exported.mlir_module())
        jitted = _jitted(exported.call, device, donated)
        if _is_dynamic(exported.in_avals):
            # Compiled again for each size that comes along; JAX checks the types of arguments.
            return jitted  # type: ignore[no-any-return]
        # Compiled, it refuses arguments of other types, which also come from somebody else.
        executable: Executable = jitted.lower(*_shapes(exported.in_avals)).compile()
        return executable
    except OpError:
        raise
    except Exception as error:
        # The bytes are somebody else's and JAX's reader fails in many ways on bad ones.
        raise InvalidArgumentError(
            f"a program of {len(data)} bytes cannot be compiled for {device}: {error}"
        ) from error


def _check_custom_calls(module: str) -> None:
    """Refuses native functions other than those that JAX's own lowerings call.

    A program may call any function that is registered in the process, so one that came over the
    wire is data only as long as it calls none but these.
    """
    named = [quoted or plain for quoted, plain in _CUSTOM_CALL.findall(module)]
    unknown = sorted(set(named) - internals.known_custom_calls())
    if unknown or len(named) != module.count("custom_call"):
        raise InvalidArgumentError(
            f"a program calls native functions that are not allowed here: {unknown or 'unnamed'}"
        )


def _jitted(fun: Callable[..., Any], device: jax.Device, donated: tuple[int, ...]) -> Any:
    here = jax.sharding.SingleDeviceSharding(device)
    return jax.jit(
        fun,
        keep_unused=True,
        donate_argnums=donated,
        in_shardings=here,
        out_shardings=here,
    )


def _is_dynamic(avals: Sequence[Any]) -> bool:
    """Whether a program takes arrays of sizes that are not known before it runs."""
    return any(jax.export.is_symbolic_dim(dim) for aval in avals for dim in aval.shape)


def _shapes(avals: Sequence[Any]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]

"""Validation of exported programs: parsing, checks and serialization.

MLIR crashes the process that parses some malformed bytes, so programs from other processes and
files are validated in a process of its own (`jflow.plan.validator`). What a process has exported
itself is inspected in place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.export

from jflow.errors import InvalidArgumentError, OpError
from jflow.plan.xla import internals
from jflow.plan.xla.modules import ModuleFacts, check_module, check_name

MAX_PROGRAM_BYTES = 256 << 20
"""The largest program that is validated."""

_MAX_DERIVATIVES = 4
_MAX_DEVICES = 4096
_MAX_SIZES = 1 << 16
"""The characters of all sizes of arguments and results, which may be expressions."""


@dataclasses.dataclass(frozen=True)
class ValidProgram:
    """A program that may be deserialized, compiled and run in this process.

    Attributes:
      data: a serialized `jax.export.Exported`.
      facts: what is known about its module.
      digest: its name in the plans that run it; "" if no plan has named it.
    """

    data: bytes
    facts: ModuleFacts
    digest: str = ""


def validated(data: bytes) -> ValidProgram:
    """Parses a program from elsewhere, checks it and serializes it again.

    MLIR may crash the process or take very long, so this is for the validator process only.

    Raises:
      InvalidArgumentError: if it is no program, or is refused.
    """
    try:
        with jax.enable_x64(True):
            exported = jax.export.deserialize(bytearray(data))
            checked, facts = _validated(exported, _MAX_DERIVATIVES)
            order = 0
            derivative = checked
            while derivative.has_vjp():
                derivative, order = derivative.vjp(), order + 1
            return ValidProgram(bytes(checked.serialize(vjp_order=order)), facts)
    except OpError:
        raise
    except Exception as error:  # of flatbuffers, JAX and MLIR, which raise many kinds
        raise InvalidArgumentError(
            f"{len(data)} bytes are no program of JAX: {type(error).__name__}: {error}"
        ) from error


def inspected(data: bytes) -> ValidProgram:
    """Checks a program that this process has exported itself.

    Raises:
      InvalidArgumentError: if it is refused, such as for a native call that servers do not allow.
    """
    exported = jax.export.deserialize(bytearray(data))
    with internals.program_context():
        module = internals.parsed_program(exported.mlir_module_serialized)
        return ValidProgram(data, _checked(module, exported))


def is_dynamic(avals: Sequence[Any]) -> bool:
    """Whether a program takes arrays of unknown sizes."""
    return any(jax.export.is_symbolic_dim(dim) for aval in avals for dim in aval.shape)


def _validated(
    exported: jax.export.Exported, n_derivatives: int
) -> tuple[jax.export.Exported, ModuleFacts]:
    if not 1 <= exported.nr_devices <= _MAX_DEVICES:
        raise InvalidArgumentError(
            f"a program is for {exported.nr_devices} devices, expected 1 to {_MAX_DEVICES}"
        )
    check_name(exported.fun_name)
    avals = (*exported.in_avals, *exported.out_avals)
    if sum(len(str(dim)) for aval in avals for dim in aval.shape) > _MAX_SIZES:
        raise InvalidArgumentError("a program has sizes that are very long expressions")
    with internals.program_context():
        module = internals.parsed_program(exported.mlir_module_serialized)
        facts = _checked(module, exported)
        module.operation.verify()
        data = internals.serialized_program(module)
    changes: dict[str, Any] = {"mlir_module_serialized": data}
    if exported.has_vjp():
        if not n_derivatives:
            raise InvalidArgumentError(f"a program has more than {_MAX_DERIVATIVES} derivatives")
        derivative, _ = _validated(exported.vjp(), n_derivatives - 1)
        changes["_get_vjp"] = lambda _: derivative
    return dataclasses.replace(exported, **changes), facts


def _checked(module: Any, exported: jax.export.Exported) -> ModuleFacts:
    return check_module(
        module,
        sizes_known=not is_dynamic(exported.in_avals),
        n_devices=exported.nr_devices,
    )

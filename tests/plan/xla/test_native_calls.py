"""The options of native calls: those that are checked are those that XLA takes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.export
import numpy as np
import pytest
from jax.lax import linalg

from jflow.errors import InvalidArgumentError
from jflow.plan.xla import compile_exported, internals
from jflow.plan.xla.custom_calls import CustomCall
from jflow.plan.xla.modules import check_module
from jflow.plan.xla.native_calls import native_call
from jflow.plan.xla.validation import validated

CPU = jax.local_devices(backend="cpu")[0]
X = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "cholesky": lambda x: linalg.cholesky(x @ x.T),
    "eig": linalg.eig,
    "eigh": linalg.eigh,
    "hessenberg": linalg.hessenberg,
    "lu": linalg.lu,
    "qr": linalg.qr,
    "schur": linalg.schur,
    "svd": linalg.svd,
    "triangular solve": lambda x: linalg.triangular_solve(x, x),
    "tridiagonal": lambda x: linalg.tridiagonal(x + x.T),
    "tridiagonal solve": lambda x: linalg.tridiagonal_solve(x[0], x[1], x[2], x),
}


@cache
def exported(name: str) -> jax.export.Exported:
    fun = jax.jit(lambda x: jax.tree.leaves(FUNCTIONS[name](x)))
    found: jax.export.Exported = jax.export.export(fun, platforms=["cpu"])(X)
    return found


def each_call(module: Any, change: Callable[[Any], None]) -> None:
    """Calls `change` with each native call of a module."""

    def look(operation: Any) -> Any:
        if operation.name == "stablehlo.custom_call":
            change(operation)
        return internals.MLIR.WalkResult.ADVANCE

    module.operation.walk(look)


def checked(name: str, change: Callable[[Any], None]) -> list[CustomCall]:
    """Checks the program with its native calls changed; returns them as they are then."""
    found: list[CustomCall] = []
    with internals.program_context():
        module = internals.parsed_program(exported(name).mlir_module_serialized)
        each_call(module, change)
        check_module(module, sizes_known=True)

        def note(operation: Any) -> None:
            assert "backend_config" not in operation.attributes
            assert "api_version" not in operation.attributes
            found.append(native_call(operation))

        each_call(module, note)
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_linear_algebra_computes_the_same_after_it_was_validated(name: str) -> None:
    program = exported(name)
    found = compile_exported(validated(bytes(program.serialize())), CPU, ())(X)
    for one, other in zip(found, program.call(X), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_two_sets_of_options_that_differ_are_refused(name: str) -> None:
    def change(operation: Any) -> None:
        other = internals.MLIR.Attribute.parse("{mode = 65 : ui8, side = 76 : ui8, low = 7 : i32}")
        operation.attributes["backend_config"] = other

    with pytest.raises(InvalidArgumentError, match="of which XLA would take one"):
        checked(name, change)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_set_of_options_is_checked_wherever_it_is(name: str) -> None:
    def twice(operation: Any) -> None:
        operation.attributes["backend_config"] = operation.attributes["mhlo.backend_config"]

    def elsewhere(operation: Any) -> None:
        twice(operation)
        del operation.attributes["mhlo.backend_config"]

    assert checked(name, twice) == checked(name, elsewhere) == checked(name, lambda _: None)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_options_that_are_missing_are_refused(name: str) -> None:
    optional = {"lu", "qr", "tridiagonal solve"}  # their functions have no options

    def change(operation: Any) -> None:
        del operation.attributes["mhlo.backend_config"]

    if name in optional:
        assert all(call.attributes == {} for call in checked(name, change))
    else:
        with pytest.raises(InvalidArgumentError, match="expected the option"):
            checked(name, change)


def test_buffers_of_different_types_cannot_share_memory() -> None:
    def change(operation: Any) -> None:
        alias = (
            "[#stablehlo.output_operand_alias<output_tuple_indices = [1], operand_index = 0, "
            "operand_tuple_indices = []>]"
        )
        operation.attributes["output_operand_aliases"] = internals.MLIR.Attribute.parse(alias)

    with pytest.raises(InvalidArgumentError, match="shares memory with an operand of another type"):
        checked("svd", change)

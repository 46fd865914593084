"""What the checks of programs refuse, and what they let pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from jflow.errors import InvalidArgumentError
from jflow.plan.xla import compile_exported
from jflow.plan.xla.validation import validated
from tests.plan.validator import hostile

MAIN = "func.func public @main(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }"
CPU = jax.local_devices(backend="cpu")[0]
X = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
WITH_NANS = np.array([3.0, np.nan, -0.0, 1.0, -np.nan, 0.0, np.inf, 2.0], np.float32)


@pytest.mark.parametrize("name", hostile.REFUSED)
def test_a_program_that_could_crash_a_process_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=hostile.REFUSED[name][2]):
        validated(hostile.program(name))


@pytest.mark.parametrize("name", ["\x1b[31mERROR", "a\nb", "\u202eback"])
def test_a_name_that_a_log_cannot_show_is_refused(name: str) -> None:
    for module in (
        f'module @"{_escaped(name)}" {{ {MAIN} }}',
        f'module {{ {MAIN} func.func private @"{_escaped(name)}"() {{ return }} }}',
    ):
        with pytest.raises(InvalidArgumentError, match="cannot be printed"):
            validated(hostile.exported(module, ((),)))
    program = jax.export.export(jax.jit(lambda x: x), platforms=["cpu"])(np.float32(1))
    with pytest.raises(InvalidArgumentError, match="cannot be printed"):
        validated(bytes(dataclasses.replace(program, fun_name=name).serialize()))


def test_a_name_of_other_letters_is_taken() -> None:
    module = f'module @"λ" {{ {MAIN} func.func private @"größe"() {{ return }} }}'
    assert validated(hostile.exported(module, ((),))).data


def _escaped(name: str) -> str:
    return "".join(f"\\{byte:02X}" for byte in name.encode())


SORTS: dict[str, Callable[[Any], Any]] = {
    "sort": jnp.sort,
    "descending": lambda x: jnp.sort(x, descending=True),
    "stable": lambda x: jnp.sort(x, stable=True),
    "argsort": jnp.argsort,
    "flipped": lambda x: jnp.flip(jnp.sort(x)),
    "two keys": lambda x: jax.lax.sort((jnp.round(x), x, x * 2), num_keys=2),
    "three keys": lambda x: jax.lax.sort((jnp.round(x), -x, x * 2), num_keys=3),
    "complex": lambda x: jnp.sort(x + 1j * x[::-1]),
    "integers": lambda x: jnp.sort(jnp.int32(jnp.nan_to_num(x))),
    "booleans": lambda x: jnp.sort(x > 0),
    "half": lambda x: jnp.sort(x.astype(jnp.bfloat16)).astype(jnp.float32),
    "lexsort": lambda x: jnp.lexsort((x, jnp.round(x))),
    "top k": lambda x: jax.lax.top_k(x, 3),
    "median": jnp.nanmedian,
    "unique": lambda x: jnp.unique(x, size=9),
    "permutation": lambda x: jax.random.permutation(jax.random.key(0), x),
    "searchsorted": lambda x: jnp.searchsorted(jnp.sort(x), x, method="sort"),
    "mode": lambda x: jax.scipy.stats.mode(jnp.round(x)).mode,
}


@pytest.mark.parametrize("name", SORTS)
def test_what_jax_sorts_by_is_an_order(name: str) -> None:
    fun = jax.jit(lambda x: jax.tree.leaves(SORTS[name](x)))
    exported = jax.export.export(fun, platforms=["cpu"])(WITH_NANS)
    valid = validated(bytes(exported.serialize()))
    for found, wanted in zip(
        compile_exported(valid, CPU, ())(WITH_NANS), fun(WITH_NANS), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


def test_an_approximate_top_k_compares_by_an_order() -> None:
    fun = jax.jit(lambda x: jax.lax.approx_max_k(x, 3))
    exported = jax.export.export(jax.jit(lambda x: [*fun(x)]), platforms=["cpu"])(X[0])
    valid = validated(bytes(exported.serialize()))
    values, _ = compile_exported(valid, CPU, ())(X[0])
    np.testing.assert_array_equal(np.sort(values), np.sort(X[0])[-3:])
    assert "TOTALORDER" in jax.export.deserialize(bytearray(valid.data)).mlir_module()


def test_a_valid_program_is_valid_again_and_the_same() -> None:
    exported = jax.export.export(jax.jit(lambda x: [jnp.sort(jnp.sin(x) @ x.T)]))(X)
    valid = validated(bytes(exported.serialize()))
    assert validated(valid.data) == valid
    assert not valid.facts.calls_native


def test_a_derivative_that_comes_with_a_program_is_checked_too() -> None:
    exported = jax.export.export(jax.jit(jnp.sin))(X)
    found = jax.export.deserialize(
        bytearray(validated(bytes(exported.serialize(vjp_order=2))).data)
    )
    (slope,) = found.vjp().call(X, jnp.ones_like(X))
    np.testing.assert_allclose(slope, np.cos(X), rtol=1e-6)


def test_sizes_are_checked_again_when_they_are_known() -> None:
    (n,) = jax.export.symbolic_shape("n")
    fun = jax.jit(lambda x: [jnp.sum(jnp.broadcast_to(x[:, None, None], (n, 2**25, n * n)))])
    exported = jax.export.export(fun, platforms=["cpu"])(jax.ShapeDtypeStruct((n,), np.float32))
    program = compile_exported(validated(bytes(exported.serialize())), CPU, ())
    with pytest.raises(InvalidArgumentError, match="at most"):
        program(np.ones(1024, np.float32))

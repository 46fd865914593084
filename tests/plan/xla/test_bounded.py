"""Which programs may take far longer than the last time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from jflow.compiler.lowering import export
from jflow.plan.xla.compile import compile_exported, is_bounded
from jflow.plan.xla.validation import inspected

CPU = jax.local_devices(backend="cpu")[0]


def _counted(n: int) -> Callable[[Any, Any], Any]:
    return lambda x, _: lax.fori_loop(0, n, lambda i, y: y * 0.5 + i, x)


PROGRAMS: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "arithmetic": (lambda x, n: x * n + jnp.sin(x), True),
    "a counted loop": (_counted(100), True),
    "a long counted loop": (_counted(2**31 - 1), True),
    "random numbers": (lambda x, n: x + jax.random.normal(jax.random.key(n), x.shape), True),
    "a loop to a number that is given": (
        lambda x, n: lax.fori_loop(0, n, lambda i, y: y * 0.5 + i, x),
        False,
    ),
    "a loop to a condition": (
        lambda x, n: lax.while_loop(lambda y: y[0] < n, lambda y: y * 2.0 + 1.0, x),
        False,
    ),
    "a short loop in a branch": (
        lambda x, n: lax.cond(n > 3, lambda y: _counted(9)(y, n), lambda y: y, x),
        True,
    ),
    "a long loop in a branch": (
        lambda x, n: lax.cond(n > 3, lambda y: _counted(2**31 - 1)(y, n), lambda y: y, x),
        False,
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_bounded_unless_its_values_decide_how_long_it_takes(name: str) -> None:
    program, expected = PROGRAMS[name]
    jaxpr = jax.make_jaxpr(lambda x, n: [program(x, n)])(jnp.ones(3), jnp.int32(2))
    compiled = compile_exported(inspected(export(jaxpr, "cpu").tobytes()), CPU, ())
    assert is_bounded(compiled) is expected

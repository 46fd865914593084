"""Keys of programs: equal ones mean equal programs, however and whenever these were traced."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jflow.compiler import lowering
from jflow.errors import InvalidArgumentError
from jflow.plan.xla.shared_cache import SharedCache
from jflow.plan.xla.structure import structure_of

X = jax.ShapeDtypeStruct((3, 4), "float32")


def traced(function: Callable[..., Any], *args: Any) -> Any:
    """The key of a program that is traced now: nothing of former traces is found again."""
    jax.clear_caches()
    return structure_of(jax.make_jaxpr(function)(*(args or (X,))))


def scanned(x: Any, n: int = 3) -> Any:
    return jax.lax.scan(lambda total, row: (total + row.sum(), row * total), 0.0, x, length=n)


PROGRAMS: dict[str, Callable[..., Any]] = {
    "arithmetic": lambda x: x * 2.0 + 1.0,
    "a nested function": lambda x: jax.jit(jnp.sin)(x) + jax.jit(jnp.sin)(x),
    "a loop": scanned,
    "a branch": lambda x: jax.lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
    "a rule of derivatives": lambda x: jax.nn.relu(x) + jax.nn.silu(x),
    "a convolution": lambda x: jax.lax.conv(x[None, None], x[None, None], (1, 1), "SAME"),
    "gathered rows": lambda x: x[jnp.array([0, 2])],
    "random numbers": lambda x: x + jax.random.normal(jax.random.key(3), x.shape),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_has_one_key_whenever_it_is_traced(name: str) -> None:
    assert traced(PROGRAMS[name]) == traced(PROGRAMS[name])
    assert hash(traced(PROGRAMS[name])) == hash(traced(PROGRAMS[name]))


class Pair(NamedTuple):
    first: Any
    second: Any


DIFFERENT: list[Pair] = [
    Pair(lambda x: x * 2.0, lambda x: x * 3.0),
    Pair(lambda x: x * 0.0, lambda x: x * -0.0),
    Pair(lambda x: x * np.array([1, 2, 3, 4], "f4"), lambda x: x * np.array([1, 2, 3, 5], "f4")),
    Pair(lambda x: x * 2.0, lambda x: x / 2.0),
    Pair(lambda x: x - x[0], lambda x: x[0] - x),
    Pair(lambda x: (x, x + 1), lambda x: (x + 1, x)),
    Pair(lambda x: jnp.sum(x, 0), lambda x: jnp.sum(x[:, :3], 1)),
    Pair(jax.jit(lambda x: x + 1), jax.jit(lambda x: x + 2)),
    Pair(partial(scanned), lambda x: scanned(x + 0.5)),
    Pair(lambda x: x.astype("int32"), lambda x: x.astype("int8")),
    Pair(lambda x: jnp.dot(x, x.T), lambda x: jnp.dot(x, x.T, precision="highest")),
]


@pytest.mark.parametrize("number", range(len(DIFFERENT)))
def test_programs_that_differ_have_different_keys(number: int) -> None:
    first, second = DIFFERENT[number]
    assert traced(first) != traced(second)


def test_a_program_of_other_types_has_another_key() -> None:
    wide, weak = jax.ShapeDtypeStruct((3, 5), "float32"), jnp.float32(1)
    assert traced(jnp.sin, X) != traced(jnp.sin, wide)
    assert traced(lambda x: x + 1, 1.0) != traced(lambda x: x + 1, weak)


def test_the_key_of_functions_in_functions_does_not_grow_with_their_calls() -> None:
    @jax.jit
    def level0(x: Any) -> Any:
        return x + 1.0

    call = level0
    for _ in range(40):  # 2**40 calls in all

        def twice(x: Any, inner: Any = call) -> Any:
            return inner(inner(x))

        call = jax.jit(twice)
    assert len(repr(traced(call))) < 100_000


def test_a_program_is_exported_once_by_whatever_graph_and_by_how_many_threads() -> None:
    def exported(scale: float) -> Any:
        return lowering.export(jax.make_jaxpr(lambda x: x * scale)(X), "cpu")

    first = exported(0.125)
    assert exported(0.125) is first
    assert exported(0.25) is not first
    with jax.default_matmul_precision("highest"):
        assert exported(0.125) is not first, "another setting"
    with ThreadPoolExecutor(4) as threads:
        assert len(set(map(id, threads.map(exported, [0.375] * 4)))) == 1


def test_a_thread_that_waits_for_one_that_is_interrupted_makes_the_value_itself() -> None:
    cache: SharedCache[str, int] = SharedCache(2)
    with ThreadPoolExecutor(1) as threads:

        def interrupted() -> int:
            waiting.append(threads.submit(cache.get, "x", lambda: 5))
            raise KeyboardInterrupt

        waiting: list[Any] = []
        with pytest.raises(KeyboardInterrupt):
            cache.get("x", interrupted)
        assert waiting[0].result(30) == 5

    def fails() -> int:
        raise InvalidArgumentError("no")

    with pytest.raises(InvalidArgumentError, match="no"):
        cache.get("y", fails)
    assert cache.get("y", lambda: 6) == 6
    assert [cache.get(name, lambda: 7) for name in ("z", "x")] == [7, 7], "it was dropped"

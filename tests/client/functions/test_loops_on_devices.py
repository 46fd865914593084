"""Loops whose bodies request several devices give what `jax.jit` gives.

Bodies are drawn: equations on random devices or none, several carries (some exchanged, some never
changed), scanned and stacked arrays, either direction, none to several iterations, and what JAX
makes of all that.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax

import jflow as tf
from tests.clusters import Backend
from tests.drawn import examples

SIZE = 3

Scope = Callable[[str | None], AbstractContextManager[Any]]

EQUATIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "add": (2, lambda a, b: (a + b) * 0.5),
    "multiply": (2, lambda a, b: jnp.tanh(a * b)),
    "product": (2, lambda a, b: jnp.tanh(jnp.outer(a, b) @ a * 0.25)),
    "sin": (1, jnp.sin),
    "roll": (1, lambda a: jnp.roll(a, 1)),
    "constant": (1, lambda a: a + jnp.arange(SIZE, dtype=jnp.float32) * 0.125),
    "mean": (1, lambda a: jnp.full(SIZE, jnp.mean(a))),
}
"""Numbers of arguments, and functions of vectors."""


@dataclass(frozen=True)
class Equation:
    """An equation of a body: its arguments are numbers in the pool of values."""

    what: str
    arguments: tuple[int, ...]
    device: str | None


@dataclass(frozen=True)
class Body:
    """A body of a scan.

    Its pool has the constants, the carries, the elements of the scanned arrays, then the results of
    the equations.

    Attributes:
      n_consts, n_carries, n_arrays: how many of each it has.
      equations: in order.
      carried, stacked: numbers in the pool: the next values of the carries, what is stacked.
      length, reverse: of the scan.
      is_checkpointed: whether JAX computes the equations again for a derivative.
      window: how many iterations may be under way; None for the default.
    """

    n_consts: int
    n_carries: int
    n_arrays: int
    equations: tuple[Equation, ...]
    carried: tuple[int, ...]
    stacked: tuple[int, ...]
    length: int
    reverse: bool
    is_checkpointed: bool
    window: int | None

    def scan(self, scope: Scope, consts: Any, carries: Any, arrays: Any) -> Any:
        """Returns the carries after the last iteration, and the stacked arrays."""

        def step(carry: Any, elements: Any) -> Any:
            pool = [*consts, *carry, *elements]
            for one in self.equations:
                with scope(one.device):
                    pool.append(EQUATIONS[one.what][1](*(pool[i] for i in one.arguments)))
            return [pool[i] for i in self.carried], [pool[i] for i in self.stacked]

        body = jax.checkpoint(step) if self.is_checkpointed else step
        with nullcontext() if self.window is None else tf.loop(window=self.window):
            return lax.scan(body, carries, arrays, length=self.length, reverse=self.reverse)

    @property
    def arguments(self) -> Any:
        """Values to scan with."""
        rng = np.random.default_rng(self.length)

        def array(*shape: int) -> Any:
            return (rng.integers(-4, 5, shape) * 0.25).astype("float32")

        consts = [array(SIZE) for _ in range(self.n_consts)]
        carries = [array(SIZE) for _ in range(self.n_carries)]
        return consts, carries, [array(self.length, SIZE) for _ in range(self.n_arrays)]


@st.composite
def bodies(draw: st.DrawFn, devices: list[str]) -> Body:
    """Bodies whose equations request one of the devices, or none."""
    n_consts, n_arrays = draw(st.integers(1, 2)), draw(st.integers(0, 2))
    n_carries = draw(st.integers(1, 3))
    n_pool = n_consts + n_carries + n_arrays
    equations = []
    for _ in range(draw(st.integers(2, 7))):
        what = draw(st.sampled_from(list(EQUATIONS)))
        numbers = st.integers(0, n_pool - 1)
        arguments = tuple(draw(numbers) for _ in range(EQUATIONS[what][0]))
        equations.append(Equation(what, arguments, draw(st.sampled_from([*devices, None]))))
        n_pool += 1
    pool = st.integers(0, n_pool - 1)
    return Body(
        n_consts,
        n_carries,
        n_arrays,
        tuple(equations),
        tuple(draw(pool) for _ in range(n_carries)),
        tuple(draw(st.lists(pool, max_size=3))),
        draw(st.sampled_from([0, 1, 2, 5])),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.sampled_from([None, 1, 2, 7])),
    )


def _total(scan: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: sum(jnp.sum(x) for x in jax.tree.leaves(scan(*args)))


def _jvp(scan: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: jax.jvp(scan, args, jax.tree.map(jnp.ones_like, args))


def _vmap(scan: Callable[..., Any]) -> Callable[..., Any]:
    def mapped(consts: Any, carries: Any, arrays: Any) -> Any:
        several = jax.tree.map(lambda x: jnp.stack([x, x * 0.5]), (consts, arrays))
        return jax.vmap(scan, (0, None, 0))(several[0], carries, several[1])

    return mapped


TRANSFORMATIONS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "plain": lambda scan: scan,
    "jit": jax.jit,
    "grad": lambda scan: jax.grad(_total(scan), (0, 1, 2)),
    "value_and_grad": lambda scan: jax.value_and_grad(_total(scan), (0, 1)),
    "jvp": _jvp,
    "vmap": _vmap,
    "grad of vmap": lambda scan: jax.grad(_total(_vmap(scan)), (0, 1)),
    "checkpoint": lambda scan: jax.grad(_total(jax.checkpoint(scan)), (0, 1)),
}


@pytest.mark.parametrize("name", TRANSFORMATIONS)
@given(st.data())
@settings(max_examples=examples(3), suppress_health_check=list(HealthCheck))
def test_a_drawn_scan_gives_what_jax_gives(
    connection: tf.function.Connection, backend: Backend, name: str, data: st.DataObject
) -> None:
    body = data.draw(bodies(list(backend.devices)))

    def of(scope: Scope) -> Callable[..., Any]:
        return TRANSFORMATIONS[name](lambda *args: body.scan(scope, *args))

    wanted = jax.jit(of(lambda _: nullcontext()))(*body.arguments)
    placed = tf.function(of(tf.device))
    for _ in range(2):
        found = placed(*body.arguments)
        assert jax.tree.structure(found) == jax.tree.structure(wanted)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 2e-5, 2e-5), found, wanted)


def test_a_slice_that_is_a_carry_is_placed_with_it(
    connection: tf.function.Connection, backend: Backend
) -> None:
    first, second, *_ = backend.devices
    equations = (
        Equation("add", (0, 0), first),
        Equation("sin", (4,), None),
        Equation("constant", (2,), first),
        Equation("sin", (8,), second),
    )
    body = Body(2, 2, 2, equations, (3, 4), (), 1, False, False, None)

    def of(scope: Scope) -> Callable[..., Any]:
        return _jvp(lambda *args: body.scan(scope, *args))

    wanted = jax.jit(of(lambda _: nullcontext()))(*body.arguments)
    found = tf.function(of(tf.device))(*body.arguments)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 2e-5, 2e-5), found, wanted)


@dataclass(frozen=True)
class Predicate:
    """What decides whether a `while` goes on, or which branch is taken.

    Attributes:
      looks_at: "counter", a value that only counts, or "values", what the body computes.
      device: where it is computed; None for no request.
    """

    looks_at: str
    device: str | None


def _while(
    body: Body, predicate: Predicate, scope: Scope, consts: Any, carries: Any, n: Any
) -> Any:
    """Repeats the equations of a body, `n` times or until a sum of the carries is large."""

    def goes_on(state: Any) -> Any:
        number, carry = state
        with scope(predicate.device):
            if predicate.looks_at == "counter":
                return number < n
            return (number < n) & (jnp.sum(carry[0]) < 1.5)

    def step(state: Any) -> Any:
        number, carry = state
        pool = [*consts, *carry, *([jnp.ones(SIZE)] * body.n_arrays)]
        for one in body.equations:
            with scope(one.device):
                pool.append(EQUATIONS[one.what][1](*(pool[i] for i in one.arguments)))
        return number + 1, [pool[i] for i in body.carried]

    with nullcontext() if body.window is None else tf.loop(window=body.window):
        return lax.while_loop(goes_on, step, (0, carries))


@pytest.mark.parametrize("transformed", ["plain", "jvp", "vmap"])
@given(st.data())
@settings(max_examples=examples(3), suppress_health_check=list(HealthCheck))
def test_a_drawn_while_gives_what_jax_gives(
    connection: tf.function.Connection, backend: Backend, transformed: str, data: st.DataObject
) -> None:
    devices = list(backend.devices)
    body = data.draw(bodies(devices))
    looks_at = st.sampled_from(["counter", "values"])
    device = st.sampled_from([*devices, None])
    predicate = data.draw(st.builds(Predicate, looks_at, device))
    consts, carries, _ = body.arguments

    def of(scope: Scope) -> Callable[..., Any]:
        def repeated(consts: Any, carries: Any, n: Any) -> Any:
            return _while(body, predicate, scope, consts, carries, n)

        if transformed == "jvp":
            tangents = jax.tree.map(jnp.ones_like, (consts, carries))
            return lambda c, i, n: jax.jvp(lambda *x: repeated(*x, n)[1], (c, i), tangents)
        if transformed == "vmap":
            return lambda c, i, n: jax.vmap(repeated, (0, None, None))(
                [jnp.stack([x, x * 0.5]) for x in c], i, n
            )
        return repeated

    plain, placed = jax.jit(of(lambda _: nullcontext())), tf.function(of(tf.device))
    for n in (body.length, 0, 3):
        arguments = consts, carries, np.int32(n)
        wanted, found = plain(*arguments), placed(*arguments)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 2e-5, 2e-5), found, wanted)


@pytest.mark.parametrize("transformed", ["plain", "grad", "vmap of grad"])
@given(st.data())
@settings(max_examples=examples(2), suppress_health_check=list(HealthCheck))
def test_a_drawn_conditional_gives_what_jax_gives(
    connection: tf.function.Connection, backend: Backend, transformed: str, data: st.DataObject
) -> None:
    devices = list(backend.devices)
    drawn = [data.draw(bodies(devices)) for _ in range(data.draw(st.integers(2, 3)))]
    where = data.draw(st.sampled_from([*devices, None]))

    def of(scope: Scope) -> Callable[..., Any]:
        def branch(body: Body) -> Callable[..., Any]:
            def computed(x: Any) -> Any:
                n_given = body.n_consts + body.n_carries + body.n_arrays
                pool = [x * (i + 1) for i in range(n_given)]
                for one in body.equations:
                    with scope(one.device):
                        pool.append(EQUATIONS[one.what][1](*(pool[i] for i in one.arguments)))
                return pool[-1], pool[body.carried[0]]

            return computed

        def chosen(x: Any, i: Any) -> Any:
            with scope(where):
                index = i * 1
            return lax.switch(index, list(map(branch, drawn)), x)

        def slopes(x: Any, i: Any) -> Any:
            return jax.grad(lambda x: sum(map(jnp.sum, chosen(x, i))))(x)

        if transformed == "vmap of grad":
            return jax.vmap(slopes, (0, None))
        return slopes if transformed == "grad" else chosen

    x = np.float32([0.25, -0.5, 0.75])
    x = np.stack([x, x * 2]) if transformed == "vmap of grad" else x
    plain, placed = jax.jit(of(lambda _: nullcontext())), tf.function(of(tf.device))
    for i in (-1, 0, 1, 2, 3):
        wanted, found = plain(x, np.int32(i)), placed(x, np.int32(i))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 2e-5, 2e-5), found, wanted)

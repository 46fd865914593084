"""Programs with JAX's own effects, for each of JAX's transformations.

A program is called with a way to note a value and an array. What it notes, how often and in which
order is what `jax.jit` makes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Note = Callable[[Any], None]
Program = Callable[[Note, Any], Any]


def _wave(note: Note) -> Callable[[Any], Any]:
    def wave(x: Any) -> Any:
        note(x)
        y = jnp.sin(x)
        note(y * 2)
        return jnp.sum(y * x)

    return wave


def _vjp(note: Note) -> Callable[[Any], Any]:
    @jax.custom_vjp
    def ruled(x: Any) -> Any:
        note(x)
        return jnp.sum(jnp.sin(x))

    def forward(x: Any) -> Any:
        note(x + 1)
        return jnp.sum(jnp.sin(x)), x

    def backward(x: Any, slope: Any) -> Any:
        note(slope)
        return (slope * jnp.cos(x),)

    ruled.defvjp(forward, backward)
    return ruled


def _jvp(note: Note) -> Callable[[Any], Any]:
    @jax.custom_jvp
    def ruled(x: Any) -> Any:
        note(x)
        return jnp.sum(jnp.sin(x))

    @ruled.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (x,), (slope,) = primals, tangents
        note(x + 2)
        return jnp.sum(jnp.sin(x)), jnp.sum(slope * jnp.cos(x))

    return ruled


def _vmapped(note: Note) -> Callable[[Any], Any]:
    ruled = jax.custom_batching.custom_vmap(_wave(note))
    ruled.def_vmap(lambda _, __, x: (jnp.sum(x, 1), True))
    return ruled


def _branching(note: Note) -> Callable[[Any], Any]:
    """Notes before, between and after what it computes in branches, one inside another."""

    def taken(x: Any) -> Any:
        y = x * 2
        note(y)
        y = jax.jit(lambda a: (note(a), jnp.cos(a))[1])(y)
        y = lax.cond(jnp.sum(y) > 100, lambda a: a, inner, y)
        note(y + 1)
        return jnp.sum(y)

    def inner(x: Any) -> Any:
        note(x - 1)
        return x * 3

    def other(x: Any) -> Any:
        note(x)
        return jnp.sum(x)

    return lambda x: lax.cond(jnp.max(x) > 0, taken, other, x)


def _switching(note: Note) -> Callable[[Any], Any]:
    def branch(number: int) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            for i in range(number):
                note(x + i)
            return jnp.sum(x) * number

        return run

    return lambda x: lax.switch(jnp.int32(jnp.sum(x)), [branch(i) for i in range(3)], x)


def _doubled(transform: Callable[..., Any], make: Any = _wave) -> Program:
    return lambda note, x: transform(make(note))(x)


def _pulled(note: Note, x: Any) -> Any:
    value, pull = jax.vjp(_wave(note), x)
    note(value)
    return value, pull(jnp.float32(1)), pull(jnp.float32(2))


def _unused(note: Note, x: Any) -> Any:
    jax.jit(_wave(note))(x)
    jax.eval_shape(_wave(note), x)
    return x


def _twice(note: Note, x: Any) -> Any:
    compiled = jax.jit(_wave(note))
    return compiled(x) + compiled(x * 2)


def _around(transform: Callable[..., Any]) -> Program:
    def run(note: Note, x: Any) -> Any:
        note(x)
        y = transform(lambda a: jnp.sum(jnp.sin(a)))(x)
        note(jnp.sum(y))
        return y

    return run


IN_ORDER: dict[str, Program] = {
    "plain": lambda note, x: _wave(note)(x),
    "jit": _doubled(jax.jit),
    "jit in jit": _doubled(lambda f: jax.jit(jax.jit(f))),
    "jit called twice": _twice,
    "results unused": _unused,
    "literals": lambda note, x: (note(1.0), note(jnp.int32(2)), x)[2],
    "branches": lambda note, x: _branching(note)(x),
    "branches not taken": lambda note, x: _branching(note)(-x),
    "branches in jit": lambda note, x: jax.jit(_branching(note))(x),
    "switch": lambda note, x: [_switching(note)(x * i) for i in (0, 0.7, 1.4)],
    "around vmap": _around(jax.vmap),
    "around grad": _around(jax.grad),
    "around grad of checkpoint": _around(lambda f: jax.grad(jax.checkpoint(f))),
    "around loop": _around(lambda f: lambda x: lax.map(f, x)),
}
"""Programs that may note in any way JAX has, also as an ordered effect with a result."""

DEBUGGING: dict[str, Program] = {
    "grad": _doubled(jax.grad),
    "value_and_grad": _doubled(jax.value_and_grad),
    "jit of grad": _doubled(lambda f: jax.jit(jax.grad(f))),
    "grad of jit": _doubled(lambda f: jax.grad(jax.jit(f))),
    "grad of grad": lambda n, x: jax.grad(lambda a: jnp.sum(jax.grad(_wave(n))(a)))(x),
    "jvp": lambda note, x: jax.jvp(_wave(note), (x,), (x,)),
    "vjp": _pulled,
    "linearize": lambda note, x: jax.linearize(_wave(note), x)[1](x),
    "hessian": _doubled(jax.hessian),
    "checkpoint": _doubled(jax.checkpoint),
    "grad of checkpoint": _doubled(lambda f: jax.grad(jax.checkpoint(f))),
    "custom_vjp": lambda note, x: _vjp(note)(x),
    "grad of custom_vjp": lambda note, x: jax.grad(_vjp(note))(x),
    "custom_jvp": lambda note, x: _jvp(note)(x),
    "grad of custom_jvp": lambda note, x: jax.grad(_jvp(note))(x),
    "grad of branches": lambda note, x: jax.grad(_branching(note))(x),
    "custom_vmap": lambda note, x: _vmapped(note)(x),
    "linear solve": lambda note, x: lax.custom_linear_solve(
        lambda a: a * 2, x, lambda _, a: (note(a), a / 2)[1]
    ),
    "branches of custom_jvp": lambda n, x: lax.cond(x[0] > 0, _jvp(n), jnp.sum, x),
}
"""Programs that may note only by `jax.debug`: JAX refuses other effects there."""

UNORDERED: dict[str, Program] = {
    "vmap": _doubled(jax.vmap),
    "vmap of grad": _doubled(lambda f: jax.vmap(jax.grad(f))),
    "jacrev": _doubled(jax.jacrev),
    "vmap of branches": _doubled(jax.vmap, _branching),
    "vmap of jit of branches": _doubled(lambda f: jax.vmap(jax.jit(f)), _branching),
}
"""Programs that may note only without an order."""

LOOPS: dict[str, Program] = {
    "map": lambda note, x: lax.map(_wave(note), x),
    "scan": lambda note, x: lax.scan(lambda c, a: (c + a, note(c)), x[0], x)[0],
    "while": lambda note, x: lax.while_loop(
        lambda a: a < 3, lambda a: (note(a), a + 1)[1], jnp.abs(x[0])
    ),
    "while, condition": lambda note, x: lax.while_loop(
        lambda a: (note(a), a < 3)[1], lambda a: a + 1, jnp.abs(x[0])
    ),
    "fori": lambda note, x: lax.fori_loop(0, 2, lambda i, a: (note(a), a + i)[1], x),
    "branch in loop": lambda note, x: lax.map(
        lambda a: lax.cond(a > 0.7, lambda b: (note(b), b)[1], jnp.sin, a), x
    ),
    "loop in branch": lambda note, x: lax.cond(
        x[0] > 0, lambda a: jnp.sum(lax.map(_wave(note), a)), jnp.sum, x
    ),
    "loop that gives nothing": lambda note, x: (
        lax.scan(lambda _, a: (None, note(a)), None, x),
        x,
    )[1],
}
"""Programs that note in the bodies of loops."""

"""Each write happens exactly once a call, in the order of the lines, whatever JAX does around it.

`note` writes a digit behind those that a variable already has, so that its value tells which writes
happened, how often and in which order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jflow as tf

Note = Callable[[int], Any]

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def connection(backend):
    with tf.connect(backend.targets[0]) as connection:
        yield connection


@pytest.fixture
def log(connection, backend):
    """A variable that no other test has, on the last device."""
    with tf.device(backend.devices[-1]):
        return tf.Variable(0, name=f"log_{next(_NUMBERS)}")


def _noting(log: tf.Variable) -> Note:
    def note(digit: int) -> Any:
        return log.assign(log.value() * 10 + digit)

    return note


def _wave(note: Note) -> Callable[[Any], Any]:
    """A function that writes between its lines."""

    def wave(x: Any) -> Any:
        note(1)
        y = jnp.sin(x)
        note(2)
        return jnp.sum(y * x)

    return wave


def _with_vjp(note: Note) -> Callable[[Any], Any]:
    @jax.custom_vjp
    def ruled(x: Any) -> Any:
        note(1)
        return jnp.sum(jnp.sin(x))

    def forward(x: Any) -> Any:
        note(2)
        return jnp.sum(jnp.sin(x)), x

    def backward(x: Any, slope: Any) -> Any:
        note(3)
        return (slope * jnp.cos(x),)

    ruled.defvjp(forward, backward)
    return ruled


def _with_jvp(note: Note) -> Callable[[Any], Any]:
    @jax.custom_jvp
    def ruled(x: Any) -> Any:
        note(1)
        return jnp.sum(jnp.sin(x))

    @ruled.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        note(2)
        (x,), (slope,) = primals, tangents
        return jnp.sum(jnp.sin(x)), jnp.sum(slope * jnp.cos(x))

    return ruled


def _linearized(note: Note, x: Any) -> Any:
    value, linear = jax.linearize(_wave(note), x)
    return value, linear(x), linear(x * 2)


def _pulled(note: Note, x: Any) -> Any:
    value, pull = jax.vjp(_wave(note), x)
    note(3)
    return value, pull(jnp.float32(1)), pull(jnp.float32(2))


def _jit_called_twice(note: Note, x: Any) -> Any:
    compiled = jax.jit(_wave(note))
    return compiled(x) + compiled(x * 2)


def _unused(note: Note, x: Any) -> Any:
    compiled = jax.jit(lambda y: (note(1), y * 2))
    compiled(x)
    note(2)
    return x


def _shape_only(note: Note, x: Any) -> Any:
    shape = jax.eval_shape(_wave(note), x).shape
    jax.make_jaxpr(_wave(note))(x)
    note(7)
    return jnp.zeros(shape)


def _surrounding(transform: Callable[..., Any]) -> Callable[[Note, Any], Any]:
    """Writes before and after something that is transformed."""

    def run(note: Note, x: Any) -> Any:
        note(1)
        y = transform(lambda a: jnp.sum(jnp.sin(a)))(x)
        note(2)
        return y

    return run


def _training(note: Note, x: Any) -> Any:
    """Two gradient steps, each of which notes its loss function and its update."""
    for digit in (3, 4):
        value, slope = jax.value_and_grad(_wave(note))(x)
        note(digit)
        x = x - slope * value
    return x


ONCE: dict[str, tuple[int, Callable[[Note, Any], Any]]] = {
    "plain": (12, lambda note, x: _wave(note)(x)),
    "jit": (12, lambda note, x: jax.jit(_wave(note))(x)),
    "jit, inline": (12, lambda note, x: jax.jit(_wave(note), inline=True)(x)),
    "jit in jit": (12, lambda note, x: jax.jit(jax.jit(_wave(note)))(x)),
    "jit called twice": (1212, _jit_called_twice),
    "results unused": (12, _unused),
    "shape only": (7, _shape_only),
    "grad": (12, lambda note, x: jax.grad(_wave(note))(x)),
    "value_and_grad": (12, lambda note, x: jax.value_and_grad(_wave(note))(x)),
    "grad of jit": (12, lambda note, x: jax.grad(jax.jit(_wave(note)))(x)),
    "jit of grad": (12, lambda note, x: jax.jit(jax.grad(_wave(note)))(x)),
    "grad of grad": (12, lambda n, x: jax.grad(lambda a: jnp.sum(jax.grad(_wave(n))(a)))(x)),
    "two steps of training": (123124, _training),
    "jvp": (12, lambda note, x: jax.jvp(_wave(note), (x,), (x,))),
    "vjp": (123, _pulled),
    "linearize": (12, _linearized),
    "hessian": (12, lambda note, x: jax.hessian(_wave(note))(x)),
    "jacfwd": (12, lambda note, x: jax.jacfwd(_wave(note))(x)),
    "jacrev": (12, lambda note, x: jax.jacrev(_wave(note))(x)),
    "vmap": (12, lambda note, x: jax.vmap(_wave(note))(x)),
    "vmap of grad": (12, lambda note, x: jax.vmap(jax.grad(_wave(note)))(x)),
    "custom_vjp": (1, lambda note, x: _with_vjp(note)(x)),
    "grad of custom_vjp": (23, lambda note, x: jax.grad(_with_vjp(note))(x)),
    "custom_jvp": (1, lambda note, x: _with_jvp(note)(x)),
    "grad of custom_jvp": (2, lambda note, x: jax.grad(_with_jvp(note))(x)),
    "around vmap": (12, _surrounding(jax.vmap)),
    "around grad": (12, _surrounding(jax.grad)),
    "around remat": (12, _surrounding(jax.checkpoint)),
    "around grad of remat": (12, _surrounding(lambda f: jax.grad(jax.checkpoint(f)))),
    "around map": (12, _surrounding(lambda f: lambda x: lax.map(f, x))),
    "around hessian": (12, _surrounding(jax.hessian)),
}
"""What each leaves in the log."""

_ON_SERVERS = ("plain", "jit called twice", "two steps of training", "vmap of grad")
"""Those that run on servers too: where a write is in the graph is settled before one sees it."""


@pytest.mark.parametrize(
    ("backend", "name"),
    [("local", name) for name in ONCE] + [("processes", name) for name in _ON_SERVERS],
    indirect=["backend"],
)
def test_every_write_happens_once_a_call_and_in_order(log: tf.Variable, name: str) -> None:
    digits, run = ONCE[name]

    @tf.function
    def call(x: Any) -> Any:
        return run(_noting(log), x)

    x = jnp.float32([0.5, 1.0])
    wanted = jax.jit(lambda x: run(lambda _: None, x))(x)
    for _ in range(2):
        log.assign(0)
        found = call(x)
        assert log.numpy() == digits
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found, wanted)


def test_every_kind_of_write_counts(log: tf.Variable) -> None:
    @tf.function
    def call(x: Any) -> Any:
        first = log.assign(x)
        second = jax.jit(log.assign_add)(x * 2)
        jax.grad(lambda a: a * log.assign_sub(x).astype(jnp.float32))(1.0)
        return first, second, log.value()

    assert [int(value) for value in call(5)] == [5, 15, 10]
    assert log.numpy() == 10


def test_a_jit_that_is_cached_writes_in_every_function_that_calls_it(log: tf.Variable) -> None:
    compiled = jax.jit(_wave(_noting(log)))
    first, second = tf.function(compiled), tf.function(lambda x: compiled(x) * 2)
    x = jnp.float32([0.5, 1.0])
    first(x), second(x), first(x)
    assert log.numpy() == 121212


def test_functions_in_functions_write_once(log: tf.Variable) -> None:
    wave = tf.function(_wave(_noting(log)))

    @tf.function
    def call(x: Any) -> Any:
        return wave(x), tf.grad(wave)(x), jax.grad(wave)(x)

    call(jnp.float32([0.5, 1.0]))
    assert log.numpy() == 121212


@pytest.mark.parametrize("transform", [tf.grad, tf.value_and_grad])
def test_the_gradient_of_a_function_writes_once(log: tf.Variable, transform: Any) -> None:
    step = transform(_wave(_noting(log)))
    x = jnp.float32([0.5, 1.0])
    step(x), step(x)
    assert log.numpy() == 1212


def test_a_signature_that_is_new_is_traced_again_and_writes_once(log: tf.Variable) -> None:
    wave = tf.function(_wave(_noting(log)))
    for x in (jnp.ones(2), jnp.ones(3), np.ones(2, np.float16), jnp.ones(2)):
        wave(x)
    assert log.numpy() == 12121212


def test_two_variables_are_written_in_the_order_of_the_lines(log: tf.Variable) -> None:
    other = tf.Variable(0, name=f"other_{next(_NUMBERS)}")

    @tf.function
    def call() -> None:
        for _ in range(3):
            log.assign(other.value() + 1)
            other.assign(log.value() * 2)

    call()
    assert (log.numpy(), other.numpy()) == (7, 14)


# Where a write cannot be --------------------------------------------------------------------------


def _loss(body: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: jnp.sum(body(x))


REFUSED: dict[str, Callable[[Callable[..., Any], Any], Any]] = {
    "scan": lambda f, x: lax.scan(lambda c, _: (f(c), None), x, None, length=2),
    "map": lax.map,
    "cond": lambda f, x: lax.cond(x[0] > 0, f, lambda y: y, x),
    "other branch": lambda f, x: lax.cond(x[0] > 0, lambda y: y, f, x),
    "switch": lambda f, x: lax.switch(1, [lambda y: y, f], x),
    "while": lambda f, x: lax.while_loop(lambda y: y[0] < 3, f, x),
    "while, condition": lambda f, x: lax.while_loop(lambda y: f(y)[0] < 3, lambda y: y + 1, x),
    "loop": lambda f, x: lax.fori_loop(0, 2, lambda _, y: f(y), x),
    "checkpoint": lambda f, x: jax.checkpoint(f)(x),
    "grad of checkpoint": lambda f, x: jax.grad(_loss(jax.checkpoint(f)))(x),
    "grad of scan": lambda f, x: jax.grad(_loss(lambda y: lax.map(f, y)))(x),
    "jit in scan": lambda f, x: lax.map(jax.jit(f), x),
    "scan in jit": lambda f, x: jax.jit(lambda y: lax.map(f, y))(x),
    "associative_scan": lambda f, x: lax.map(
        lambda y: lax.associative_scan(jnp.add, f(y)[None]), x
    ),
}


@pytest.mark.parametrize("backend", ["local"], indirect=True)
@pytest.mark.parametrize("kind", ["assign", "assign_add"])
@pytest.mark.parametrize("name", REFUSED)
def test_a_write_that_jax_may_repeat_or_drop_is_refused_at_its_line(
    log: tf.Variable, name: str, kind: str
) -> None:
    write = getattr(log, kind)

    def body(x: Any) -> Any:
        return x + write(1)

    call = tf.function(lambda x: (log.assign_add(1), REFUSED[name](body, x)))
    with pytest.raises(NotImplementedError) as caught:
        call(jnp.float32([0.5, 1.0]))
    line = body.__code__.co_firstlineno + 1
    assert f"variable {log.name[:-2]!r}" in str(caught.value)
    assert f"{__file__}:{line} in body" in str(caught.value)
    assert log.numpy() == 0
    log.assign(5)
    assert log.numpy() == 5


def test_a_write_of_a_value_for_each_example_of_a_vmap_is_refused(log: tf.Variable) -> None:
    def body(x: Any) -> Any:
        return log.assign(x)

    with pytest.raises(TypeError, match=rf"{log.name[:-2]}.*vmap.*test_effects.py:\d+ in body"):
        tf.function(jax.vmap(body))(jnp.arange(3, dtype=jnp.int32))
    assert log.numpy() == 0


# Reads in loops, branches and checkpoints ---------------------------------------------------------


def _around(transform: Callable[..., Any], log: tf.Variable) -> Callable[[Any], Any]:
    """Reads inside a loop, branch or checkpoint with a write before and after it."""

    def call(x: Any) -> Any:
        log.assign_add(1)
        y = transform(lambda a: a * log.value().astype(jnp.float32), x)
        log.assign_add(10)
        return y

    return call


READ_INSIDE: dict[str, Callable[[Callable[..., Any], Any], Any]] = {
    **{name: run for name, run in REFUSED.items() if name not in ("associative_scan",)},
    "vmap": lambda f, x: jax.vmap(f)(x),
    "while, jit": lambda f, x: lax.while_loop(lambda y: f(y)[0] < 3, jax.jit(f), x),
    "scan in scan": lambda f, x: lax.map(lambda y: lax.map(f, y), x[:, None]),
    "cond in scan": lambda f, x: lax.map(lambda y: lax.cond(y > 0, f, jnp.sin, y), x),
    "checkpoint in scan": lambda f, x: jax.grad(_loss(lambda y: lax.map(jax.checkpoint(f), y)))(x),
}


@pytest.mark.parametrize("backend", ["local"], indirect=True)
@pytest.mark.parametrize("name", READ_INSIDE)
def test_a_read_inside_sees_the_writes_before_and_none_after(log: tf.Variable, name: str) -> None:
    call = tf.function(_around(READ_INSIDE[name], log))
    x = jnp.float32([0.5, 1.0])
    if "while" in name:
        log.assign(1)
    for _ in range(2):
        before = int(log.numpy())
        wanted = jax.jit(lambda a, n=before + 1: READ_INSIDE[name](lambda b: b * jnp.float32(n), a))
        jax.tree.map(np.testing.assert_array_equal, call(x), wanted(x))
        assert log.numpy() == before + 11


DIFFERENTIATED: dict[str, Callable[[Callable[..., Any], Any], Any]] = {
    "plain": lambda f, x: f(x),
    "jit": lambda f, x: jax.jit(f)(x),
    "scan": lambda f, x: lax.scan(lambda c, _: (f(c), f(c)), x, None, length=2),
    "map": lax.map,
    "loop": lambda f, x: lax.fori_loop(0, 2, lambda _, y: f(y), x),
    "cond": lambda f, x: lax.cond(x[0] > 0, f, jnp.sin, x),
    "cond in map": lambda f, x: lax.map(lambda y: lax.cond(y > 0, f, jnp.sin, y), x),
    "jit of map": lambda f, x: jax.jit(lambda y: lax.map(f, y))(x),
    "vmap": lambda f, x: jax.vmap(f)(x),
}
CHECKPOINTED = {
    "checkpoint": lambda f, x: jax.checkpoint(f)(x),
    "checkpoint in jit": lambda f, x: jax.jit(jax.checkpoint(f))(x),
    "checkpoint in scan": lambda f, x: lax.map(jax.checkpoint(f), x),
    "checkpoint of scan": lambda f, x: jax.checkpoint(lambda y: lax.map(f, y))(x),
    "checkpoint in cond": lambda f, x: lax.cond(x[0] > 0, jax.checkpoint(f), jnp.sin, x),
    "checkpoint in jit in scan": lambda f, x: lax.map(jax.jit(jax.checkpoint(f)), x),
}


def _written_between_the_passes(log: tf.Variable, around: Callable[..., Any]) -> Any:
    """A function that updates a variable before it goes back through a use of it."""

    def inner(x: Any) -> Any:
        return jnp.sin(x * log.value().astype(jnp.float32))

    @tf.function
    def call(x: Any) -> Any:
        y, pull = jax.vjp(lambda a: around(inner, a), x)
        log.assign_add(5)
        return y, pull(y)

    return call


@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_a_backward_pass_goes_through_what_its_forward_pass_read(
    log: tf.Variable, name: str
) -> None:
    around = DIFFERENTIATED[name]
    log.assign(2)
    x = jnp.float32([0.5, 1.0])
    y, pull = jax.vjp(lambda a: around(lambda b: jnp.sin(b * 2.0), a), x)
    found = _written_between_the_passes(log, around)(x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found, (y, pull(y)))
    assert log.numpy() == 7


@pytest.mark.parametrize("name", CHECKPOINTED)
def test_a_read_that_the_backward_pass_repeats_after_a_write_is_refused(
    log: tf.Variable, name: str
) -> None:
    call = _written_between_the_passes(log, CHECKPOINTED[name])
    with pytest.raises(NotImplementedError, match=f"{log.name[:-2]}.*jax.checkpoint") as caught:
        call(jnp.float32([0.5, 1.0]))
    assert f"{__file__}:" in str(caught.value)
    assert log.numpy() == 0


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_write_before_or_after_both_passes_of_a_checkpoint_is_fine(
    log: tf.Variable, when: str
) -> None:
    def inner(x: Any) -> Any:
        return jnp.sin(x * log.value().astype(jnp.float32))

    @tf.function
    def call(x: Any) -> Any:
        if when == "before":
            log.assign_add(1)
        slope = jax.grad(jax.checkpoint(inner))(x)
        if when == "after":
            log.assign_add(1)
        return slope

    log.assign(2)
    factor = 3.0 if when == "before" else 2.0
    np.testing.assert_allclose(call(jnp.float32(1)), factor * np.cos(factor), rtol=1e-5)
    assert log.numpy() == 3

"""Callbacks with effects in loops over devices: once an iteration, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback

import jflow as tf
from tests.clusters import Backend

Called = list[Any]


def first_half(backend: Backend, x: Any) -> Any:
    with tf.device(backend.devices[0]):
        return x * 2.0


def second_half(backend: Backend, x: Any) -> Any:
    with tf.device(backend.devices[-1]):
        return x + 1.0


def called_by(function: Callable[[Called], Any]) -> tuple[Any, Called]:
    """Returns what a function gives that is traced with a list, and what it adds to the list."""
    called: Called = []
    result = function(called)
    jax.effects_barrier()
    return result, called


def check(traced: Callable[[Called], Callable[..., Any]], *args: Any) -> Called:
    """Checks that a function gives and calls what it does under `jax.jit`; returns the calls."""
    wanted, wanted_calls = called_by(lambda called: jax.jit(traced(called))(*args))
    found, calls = called_by(lambda called: tf.function(traced(called))(*args))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-6), found, wanted)
    assert calls == wanted_calls
    return calls


def noted(called: Called, x: Any) -> Any:
    """Adds a value to a list, and returns how many the list had."""

    def note(value: Any) -> Any:
        called.append(float(value))
        return np.float32(len(called) - 1)

    return io_callback(note, jax.ShapeDtypeStruct((), "float32"), x, ordered=True)


def test_a_scan_calls_once_an_iteration_in_order(
    connection: tf.function.Connection, backend: Backend
) -> None:
    def traced(called: Called) -> Callable[..., Any]:
        def body(total: Any, x: Any) -> tuple[Any, Any]:
            y = first_half(backend, x)
            first = noted(called, y)
            return total + y, (first, noted(called, second_half(backend, y)))

        return lambda xs: lax.scan(body, 0.0, xs)

    assert len(check(traced, np.arange(7, dtype="float32"))) == 14


@pytest.mark.parametrize("n", [0, 1, 5])
def test_a_while_calls_only_in_the_iterations_that_run(
    connection: tf.function.Connection, backend: Backend, n: int
) -> None:
    def traced(called: Called) -> Callable[..., Any]:
        def body(state: Any) -> Any:
            number, x = state
            jax.debug.callback(lambda i: called.append(int(i)), number, ordered=True)
            return number + 1, second_half(backend, first_half(backend, x))

        return lambda n, x: lax.while_loop(lambda state: state[0] < n, body, (0, x))

    assert check(traced, n, 0.5) == [*range(n)]


def test_a_while_whose_data_ends_it_calls_as_often_as_it_runs(
    connection: tf.function.Connection, backend: Backend
) -> None:
    def traced(called: Called) -> Callable[..., Any]:
        def body(x: Any) -> Any:
            y = second_half(backend, first_half(backend, x))
            return y + 0 * noted(called, y)

        return lambda x: lax.while_loop(lambda x: x < 100, body, x)

    assert len(check(traced, np.float32(1.0))) == 6


@pytest.mark.parametrize("chosen", [0, 1, 2])
def test_only_the_branch_that_is_taken_calls(
    connection: tf.function.Connection, backend: Backend, chosen: int
) -> None:
    def traced(called: Called) -> Callable[..., Any]:
        def branch(number: int) -> Callable[[Any], Any]:
            def run(x: Any) -> Any:
                y = second_half(backend, first_half(backend, x))
                if number != 1:
                    jax.debug.callback(lambda y: called.append((number, float(y))), y, ordered=True)
                return y * number

            return run

        def run(index: Any, x: Any) -> Any:
            y = lax.switch(index, [*map(branch, range(3))], x)
            jax.debug.callback(lambda y: called.append(("after", float(y))), y, ordered=True)
            return y

        return run

    check(traced, chosen, np.float32(3.0))


def test_loops_in_loops_call_in_the_order_of_both(
    connection: tf.function.Connection, backend: Backend
) -> None:
    def traced(called: Called) -> Callable[..., Any]:
        def inner(total: Any, x: Any) -> tuple[Any, None]:
            y = second_half(backend, first_half(backend, x))
            return total + noted(called, y), None

        def outer(total: Any, xs: Any) -> tuple[Any, None]:
            noted(called, second_half(backend, total))
            total, _ = lax.scan(inner, total, xs)
            lax.cond(total > 3, lambda x: noted(called, x), lambda x: x, total)
            return total, None

        return lambda xs: lax.scan(outer, 0.0, xs)[0]

    check(traced, np.arange(6, dtype="float32").reshape(3, 2))


def test_a_loop_that_only_calls(connection: tf.function.Connection, backend: Backend) -> None:
    def traced(called: Called) -> Callable[..., Any]:
        def body(_: Any, x: Any) -> tuple[None, None]:
            y = second_half(backend, first_half(backend, x))
            jax.debug.callback(lambda value: called.append(float(value)), y, ordered=True)
            return None, None

        def run(xs: Any) -> Any:
            lax.scan(body, None, xs)
            lax.scan(body, None, -xs, reverse=True)
            return xs.sum()

        return run

    assert len(check(traced, np.arange(4, dtype="float32"))) == 8


def test_gradients_call_in_the_forward_pass(
    connection: tf.function.Connection, backend: Backend
) -> None:
    def traced(called: Called) -> Callable[..., Any]:
        def body(total: Any, x: Any) -> tuple[Any, None]:
            y = jnp.sin(second_half(backend, first_half(backend, x)))
            jax.debug.callback(lambda value: called.append(float(value)), y)
            return total + y * y, None

        return jax.grad(lambda xs: lax.scan(body, 0.0, xs)[0])

    assert len(check(traced, np.arange(5, dtype="float32"))) == 5


def test_printing(
    connection: tf.function.Connection, backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    def body(total: Any, x: Any) -> tuple[Any, None]:
        y = second_half(backend, first_half(backend, x))
        jax.debug.print("y = {y}", y=y)
        return total + y, None

    tf.function(lambda xs: lax.scan(body, 0.0, xs)[0])(np.arange(3, dtype="float32"))
    jax.effects_barrier()
    assert capsys.readouterr().out.split("\n") == ["y = 1.0", "y = 3.0", "y = 5.0", ""]


def test_an_error_of_a_callback_ends_the_loop(
    connection: tf.function.Connection, backend: Backend
) -> None:
    called: Called = []

    def fail_at_three(x: Any) -> None:
        called.append(float(x))
        if x == 3:
            raise ValueError("three is too much")

    def body(total: Any, x: Any) -> tuple[Any, None]:
        y = second_half(backend, first_half(backend, x))
        jax.debug.callback(fail_at_three, x)
        return total + y, None

    looping = tf.function(lambda xs: lax.scan(body, 0.0, xs)[0])
    with pytest.raises(Exception, match="three is too much"):
        looping(np.arange(8, dtype="float32"))
    assert called == [0, 1, 2, 3]


@pytest.mark.parametrize("n", [0, 1, 4])
@pytest.mark.parametrize("spans", [False, True])
def test_a_predicate_calls_once_more_than_the_body(
    connection: tf.function.Connection, backend: Backend, n: int, spans: bool
) -> None:
    def traced(called: Called) -> Callable[..., Any]:
        def goes_on(state: Any) -> Any:
            jax.debug.callback(lambda i: called.append(("test", int(i))), state[0], ordered=True)
            return state[0] < n

        def body(state: Any) -> Any:
            number, x = state
            jax.debug.callback(lambda i: called.append(("body", int(i))), number, ordered=True)
            x = first_half(backend, x)
            return number + 1, second_half(backend, x) if spans else x

        def run(x: Any) -> Any:
            state = lax.while_loop(goes_on, body, (0, x))
            jax.debug.callback(lambda x: called.append(("after", float(x))), state[1], ordered=True)
            return state

        return run

    assert len(check(traced, 0.5)) == 2 * n + 2


def test_a_predicate_that_python_computes_ends_the_loop(
    connection: tf.function.Connection, backend: Backend
) -> None:
    def traced(called: Called) -> Callable[..., Any]:
        def is_less(x: Any) -> Any:
            called.append(float(x))
            return np.bool_(x < 3)

        def goes_on(x: Any) -> Any:
            return io_callback(is_less, jax.ShapeDtypeStruct((), "bool"), x, ordered=True)

        return lambda x: lax.while_loop(goes_on, lambda x: x + 1, x)

    assert len(check(traced, 0.5)) == 4


@pytest.mark.parametrize("spans", [False, True])
def test_a_graph_that_fetches_only_a_result_of_a_loop_has_its_effects(
    backend: Backend, spans: bool
) -> None:
    called: Called = []

    def body(i: Any, c: Any) -> Any:
        io_callback(lambda i: called.append(int(i)), None, i, ordered=True)
        c = first_half(backend, c)
        return second_half(backend, c) if spans else c

    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, (2,))
        y = graph.apply(lambda x: lax.fori_loop(0, 3, body, x), (x,))
        with backend.session(graph=graph) as session:
            session.run(y, {x: [1.0, 2.0]})
            jax.effects_barrier()
    assert called == [0, 1, 2]


def test_a_loop_of_a_call_on_unknown_ranks_is_opened(backend: Backend) -> None:
    called: Called = []

    def looped(x: Any) -> Any:
        def body(c: Any, _: Any) -> Any:
            y = first_half(backend, c)
            io_callback(lambda y: called.append(float(y.sum())), None, y, ordered=True)
            return second_half(backend, y), None

        return lax.scan(body, x, None, length=3)[0]

    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, None)
        y = graph.apply(looped, (x,))
        with backend.session(graph=graph) as session:
            np.testing.assert_allclose(session.run(y, {x: [1.0, 2.0]}), [15.0, 23.0])
            jax.effects_barrier()
            assert called == [6.0, 16.0, 36.0]
            np.testing.assert_allclose(session.run(y, {x: 1.0}), 15.0)


@pytest.mark.parametrize("backend", ["in_process"], indirect=True)
def test_a_loop_of_unknown_length_that_calls_python_is_refused_with_a_remedy(
    backend: Backend,
) -> None:
    def body(c: Any, x: Any) -> Any:
        jax.debug.print("{}", x)
        return c + x, None

    with tf.Graph().as_default() as graph:
        xs = tf.placeholder(tf.float32, (None,))
        y = graph.apply(lambda xs: lax.scan(body, 0.0, xs)[0], (xs,))
        with (
            backend.session(graph=graph) as session,
            pytest.raises(
                tf.errors.UnimplementedError, match=r"test_effects.*unknown length.*set_"
            ),
        ):
            session.run(y, {xs: [1.0, 2.0]})

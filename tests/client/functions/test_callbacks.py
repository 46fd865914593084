"""JAX's own effects: each happens as often and in the order in which `jax.jit` has it happen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify, io_callback

import jflow as tf
from jflow.compiler.pipeline import pipeline
from jflow.testing import PATIENCE_S
from tests.client.functions.effect_programs import DEBUGGING, IN_ORDER, LOOPS, UNORDERED
from tests.clusters import BACKENDS, Backend

Log = dict[str, list[Any]]
X = jax.device_put(np.float32([0.5, 1.0]))


@pytest.fixture(scope="module")
def connection(backend: Backend) -> Iterator[tf.Connection]:
    with tf.connect(backend.targets[0]) as connection:
        yield connection


def _with_io(write: Callable[[Any], None], value: Any) -> None:
    def callback(x: Any) -> Any:
        write(x)
        return np.float32(1)

    io_callback(callback, jax.ShapeDtypeStruct((), jnp.float32), value, ordered=True)


def _with_debug(write: Callable[[Any], None], value: Any) -> None:
    jax.debug.callback(write, value, ordered=True)


def _without_order(write: Callable[[Any], None], value: Any) -> None:
    jax.debug.callback(write, value)


EFFECTS = {
    **{f"{name}, io": (program, _with_io) for name, program in IN_ORDER.items()},
    **{f"{name}, debug": (program, _with_debug) for name, program in DEBUGGING.items()},
    **{f"{name}, unordered": (p, _without_order) for name, p in UNORDERED.items()},
}


def _program(effects: Any, log: Log, block: Callable[[], Any]) -> Callable[[Any], Any]:
    """A function that runs programs one after the other, and logs what each notes."""

    def run(x: Any) -> Any:
        results = {}
        for name, (program, effect) in effects.items():

            def note(value: Any, name: str = name, effect: Any = effect) -> None:
                def write(x: Any) -> None:
                    log.setdefault(name, []).append(np.round(x, 3).tolist())

                with block():
                    effect(write, value + value)

            results[name] = program(note, x)
        return results

    return run


def _sorted(log: Log) -> Log:
    return {
        name: sorted(notes, key=str) if "unordered" in name else notes
        for name, notes in log.items()
    }


@cache
def _with_jit(loops: bool) -> tuple[Any, Log]:
    log: Log = {}
    effects = _loops() if loops else EFFECTS
    results = jax.jit(_program(effects, log, nullcontext))(X)
    jax.effects_barrier()
    return results, _sorted(log)


def _loops() -> Any:
    ordered = {f"{name}, debug": (program, _with_debug) for name, program in LOOPS.items()}
    around = {"before": (IN_ORDER["plain"], _with_debug), **ordered}
    return {**around, "scan, io": (LOOPS["scan"], _with_io), "after": (IN_ORDER["plain"], _with_io)}


@pytest.mark.parametrize(
    ("backend", "where"),
    [
        ("local", "last"),
        ("in_process", "last"),
        ("processes", "nowhere"),
        ("processes", "last"),
    ],
    indirect=["backend"],
)
@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.usefixtures("connection")
def test_effects_are_counted_as_under_jit(backend: Backend, where: str, loops: bool) -> None:
    log: Log = {}
    block = partial(tf.device, backend.devices[-1]) if where == "last" else nullcontext
    call = tf.function(_program(_loops() if loops else EFFECTS, log, block))
    results, wanted = _with_jit(loops)
    for _ in range(2):
        log.clear()
        found = call(X)
        jax.effects_barrier()
        assert _sorted(log) == wanted
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found, results)


@pytest.mark.usefixtures("connection")
def test_effects_of_loops_and_of_lines_around_them_keep_the_order_of_the_lines(
    backend: Backend,
) -> None:
    seen: list[float] = []

    @tf.function
    def call(x: Any) -> Any:
        for offset in (0, 10):
            jax.debug.callback(lambda v: seen.append(float(v)), x + offset, ordered=True)
            jax.lax.map(
                lambda v: jax.debug.callback(lambda w: seen.append(float(w)), v, ordered=True),
                x + offset + jnp.arange(1.0, 4.0),
            )
        return x

    call(jnp.float32(0))
    jax.effects_barrier()
    assert seen == [0, 1, 2, 3, 10, 11, 12, 13]


# What callbacks are given and give ----------------------------------------------------------------


@pytest.mark.parametrize("backend", ["local", "processes"], indirect=True)
@pytest.mark.usefixtures("connection")
def test_operands_and_results_are_as_under_jit(backend: Backend) -> None:
    seen: list[Any] = []

    def look(*args: Any) -> Any:
        seen.append([(str(jnp.asarray(a).dtype), np.shape(a)) for a in args])
        assert all(isinstance(arg, jax.Array) for arg in args)
        return jnp.sum(args[0].astype(jnp.float32)), np.arange(3, dtype=np.int8)

    shapes = jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((3,), jnp.int8)

    def run(x: Any, key: Any) -> Any:
        with tf.device(backend.devices[-1]):
            args = x.astype(jnp.bfloat16), x > 1, x.astype(jnp.int4), key, x[:0]
        total, counted = io_callback(look, shapes, *args[:3], args[4])
        jax.debug.callback(lambda k: seen.append(str(k.dtype)), args[3], ordered=True)
        return total * 2, counted, jax.pure_callback(np.sin, x, x, vmap_method="sequential")

    args = jnp.float32([1, 2, 3]), jax.random.key(1)
    found = tf.function(run)(*args)
    wanted_seen, seen[:] = [*seen], []
    wanted = jax.jit(run)(*args)
    jax.effects_barrier()
    assert sorted(map(str, seen)) == sorted(map(str, wanted_seen))
    jax.tree.map(np.testing.assert_array_equal, found, wanted)


@pytest.mark.parametrize("backend", ["local", "processes"], indirect=True)
@pytest.mark.usefixtures("connection")
def test_a_pure_callback_that_nothing_uses_is_not_called(backend: Backend) -> None:
    called: list[int] = []

    def count(x: Any) -> Any:
        called.append(1)
        return x

    @tf.function
    def run(x: Any) -> Any:
        jax.pure_callback(count, x, x)
        used = jax.jit(lambda a: (jax.pure_callback(count, a, a), a))(x)
        return used[1]

    run(X)
    assert not called


@pytest.mark.parametrize("backend", ["local", "processes"], indirect=True)
@pytest.mark.usefixtures("connection")
def test_a_result_of_another_kind_than_declared_is_refused(backend: Backend) -> None:
    def give(x: Any) -> Any:
        return np.zeros(3, np.float32)

    def run(x: Any) -> Any:
        return io_callback(give, jax.ShapeDtypeStruct((2,), jnp.float32), x)

    with pytest.raises(RuntimeError, match=r"float32 \(3,\).*expected float32 \(2,\)") as caught:
        tf.function(run)(X)
    line = run.__code__.co_firstlineno + 1
    assert f"{__file__}:{line} in " in str(caught.value)


@pytest.mark.parametrize("backend", ["local", "processes"], indirect=True)
@pytest.mark.usefixtures("connection")
def test_what_is_printed_is_printed_here_before_the_call_returns(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    @tf.function
    def run(x: Any) -> Any:
        with tf.device(backend.devices[-1]):
            y = x * 2
        jax.debug.print("first {}, then {last}", x[0], last=y[1])
        return y

    run(X)
    assert capsys.readouterr().out == "first 0.5, then 2.0\n"


@pytest.mark.parametrize("backend", ["local", "processes"], indirect=True)
@pytest.mark.usefixtures("connection")
def test_calls_of_several_threads_get_the_results_of_their_own_callbacks(
    backend: Backend,
) -> None:
    @tf.function
    def run(x: Any) -> Any:
        same = io_callback(lambda a: a, x, x)
        return io_callback(lambda a: a + 1, same, same)

    def call(number: int) -> list[float]:
        return [float(run(np.float32(number * 100 + i))) for i in range(10)]

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(call, range(4)))
    assert found == [[n * 100 + i + 1.0 for i in range(10)] for n in range(4)]


@pytest.mark.parametrize("backend", ["local", "processes"], indirect=True)
@pytest.mark.usefixtures("connection")
def test_a_callback_may_run_functions_itself(backend: Backend) -> None:
    double = tf.function(lambda x: x * 2)

    @tf.function
    def run(x: Any) -> Any:
        y = io_callback(double, jax.ShapeDtypeStruct((2,), jnp.float32), x)
        return y + 1

    np.testing.assert_array_equal(run(X), X * 2 + 1)


@pytest.mark.parametrize("backend", ["local", "processes"], indirect=True)
@pytest.mark.usefixtures("connection")
def test_values_of_every_kind_pass_by_a_callback_in_a_branch(backend: Backend) -> None:
    seen: list[float] = []

    def taken(x: Any) -> Any:
        key = jax.random.key(7)
        small, flag, half = x.astype(jnp.int4), x > 1, x.astype(jnp.bfloat16)
        jax.debug.callback(lambda v: seen.append(float(v)), x[0])
        noise = jax.random.uniform(key, (3,))
        return jnp.where(flag, small.astype(jnp.float32), half.astype(jnp.float32)) + noise

    def run(x: Any, index: Any) -> Any:
        return jax.lax.switch(index, [taken, lambda a: a, lambda a: taken(a + 1)], x)

    x, call = jnp.float32([0.5, 1.5, 2.5]), tf.function(run)
    for index in range(3):
        np.testing.assert_array_equal(call(x, index), jax.jit(run)(x, index))
        jax.effects_barrier()
    assert seen == [0.5, 0.5, 1.5, 1.5]


def test_what_waits_for_no_callback_stays_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered: list[Any] = []
    lower = pipeline.lower
    monkeypatch.setattr(
        pipeline,
        "lower",
        lambda ops, *rest, **named: (lowered.append(ops), lower(ops, *rest, **named))[1],
    )
    seen: list[float] = []

    def run(x: Any) -> Any:
        for _ in range(3):
            x = jnp.sin(x)
            jax.debug.callback(lambda v: seen.append(float(v[0])), x)
        return x * 2

    with tf.connect():
        tf.function(run)(X)
    assert len(seen) == 3
    assert len(lowered) == 1


# What goes wrong ----------------------------------------------------------------------------------


class _OwnError(Exception):
    pass


@pytest.mark.usefixtures("connection")
def test_what_a_callback_raises_ends_the_step_and_names_its_line(backend: Backend) -> None:
    later: list[int] = []

    def fail(x: Any) -> Any:
        raise _OwnError("too large")

    def run(x: Any) -> Any:
        with tf.device(backend.devices[-1]):
            y = jnp.sin(x)
        y = io_callback(fail, y, y, ordered=True)
        jax.debug.callback(lambda: later.append(1), ordered=True)
        with tf.device(backend.devices[-1]):
            return jnp.cos(y)

    call = tf.function(run)
    line = run.__code__.co_firstlineno + 3
    for _ in range(2):
        with pytest.raises(_OwnError, match="too large") as caught:
            call(X)
        assert f"{__file__}:{line} in " in "".join(caught.value.__notes__)
        assert "in fail" in str(caught.getrepr(style="short"))
    assert not later
    np.testing.assert_array_equal(tf.function(lambda x: x + 1)(X), X + 1)


@pytest.mark.parametrize("backend", ["processes"], indirect=True)
def test_a_step_whose_callback_takes_too_long_ends_at_its_deadline(backend: Backend) -> None:
    go_on = threading.Event()

    def wait(x: Any) -> Any:
        go_on.wait(PATIENCE_S)
        return x

    def run(x: Any, is_waiting: Any) -> Any:
        y = jax.lax.cond(is_waiting, lambda a: io_callback(wait, a, a), lambda a: a, x)
        with tf.device(backend.devices[-1]):
            return y + 1

    graph = tf.Graph()
    with graph.as_default(), backend.session(graph=graph) as session:
        is_waiting = tf.placeholder(tf.bool, [])
        y = tf.function(run)(tf.constant([1.0, 2.0]), is_waiting)
        np.testing.assert_array_equal(session.run(y, {is_waiting: False}), [2, 3])
        timer = threading.Timer(1, go_on.set)
        timer.start()
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(y, {is_waiting: True}, options=tf.RunOptions(timeout_in_ms=100))
        timer.join()
        np.testing.assert_array_equal(session.run(y, {is_waiting: False}), [2, 3])


def test_a_step_ends_when_its_client_closes_during_a_callback() -> None:
    with BACKENDS["in_process"]() as backend:
        connection = tf.connect(backend.targets[0])
        with connection:

            def close(x: Any) -> Any:
                connection.close()
                return x

            @tf.function
            def run(x: Any) -> Any:
                y = io_callback(close, x, x)
                with tf.device(backend.devices[-1]):
                    return y + 1

            with pytest.raises(tf.errors.CancelledError):
                run(X)


# Mutable arrays -----------------------------------------------------------------------------------


def _updated(x: Any, first: Any, second: Any) -> Any:
    ref = jax.new_ref(x)
    with first():
        ref[...] += 1
    with second():
        ref[0] = ref[1] * 2
    return ref[...], ref[0]


def _scanned_outside(x: Any, first: Any, second: Any) -> Any:
    ref = jax.new_ref(x)

    def body(total: Any, y: Any) -> Any:
        with first():
            ref[...] += y
        with second():
            return total + ref[0], ref[...]

    return jax.lax.scan(body, 0.0, jnp.arange(3.0)), jax.freeze(ref)


def _scanned_inside(x: Any, first: Any, second: Any) -> Any:
    def body(carry: Any, y: Any) -> Any:
        ref = jax.new_ref(carry)
        with first():
            ref[...] += y
        with second():
            ref[0] = ref[0] * 2
        return ref[...], ref[1]

    return jax.lax.scan(body, x, jnp.arange(3.0))


def _in_a_branch(x: Any, first: Any, second: Any) -> Any:
    ref = jax.new_ref(x)

    def write() -> None:
        with second():
            ref[0] = 7.0

    jax.lax.cond(x[0] > 0, write, lambda: None)
    return ref[...]


def _differentiated(x: Any, first: Any, second: Any) -> Any:
    def loss(x: Any) -> Any:
        ref = jax.new_ref(x)
        with second():
            ref[...] = jnp.sin(ref[...])
        return ref[...].sum()

    return jax.grad(loss)(x)


@jax.custom_jvp
def _tripled(x: Any) -> Any:
    ref = jax.new_ref(x)
    ref[...] = ref[...] * 3
    return ref[...]


@_tripled.defjvp
def _(primals: Any, tangents: Any) -> Any:
    ref = jax.new_ref(tangents[0])
    return primals[0] * 3, ref[...] * 5


def _under_a_rule(x: Any, first: Any, second: Any) -> Any:
    return jax.grad(lambda x: _tripled(x).sum())(x)


REFS: dict[str, Callable[..., Any]] = {
    "under a rule": _under_a_rule,
    "updated": _updated,
    "scanned outside": _scanned_outside,
    "scanned inside": _scanned_inside,
    "in a branch": _in_a_branch,
    "differentiated": _differentiated,
}


REFUSED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "check": ("check", lambda x: (checkify.check(x[0] > 0, "negative"), x)[1]),
    "check in jit": ("jit", jax.jit(lambda x: (checkify.check(x[0] > 0, "negative"), x)[1])),
}


@pytest.mark.parametrize("backend", ["local"], indirect=True)
@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.usefixtures("connection")
def test_an_effect_that_a_graph_cannot_have_is_refused_at_its_line(
    backend: Backend, name: str
) -> None:
    primitive, effect = REFUSED[name]

    def run(x: Any) -> Any:
        return effect(x)

    with pytest.raises(NotImplementedError, match=f"'{primitive}' .*effect") as caught:
        tf.function(run)(X)
    assert f"{__file__}:" in str(caught.value)


@pytest.mark.parametrize("backend", ["local", "processes"], indirect=True)
@pytest.mark.parametrize("name", REFS)
@pytest.mark.usefixtures("connection")
def test_a_ref_that_a_function_makes_is_a_value(backend: Backend, name: str) -> None:
    first, second = (partial(tf.device, backend.devices[i]) for i in (0, -1))

    def run(x: Any) -> Any:
        return REFS[name](x, first, second)

    for call in (run, jax.jit(run)):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, 1e-6),
            tf.function(call)(X),
            jax.jit(run)(X),
        )

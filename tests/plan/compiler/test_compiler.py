"""Programs that another process compiles: their values, and what follows when it dies."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import psutil
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jflow.errors import DeadlineExceededError, InternalError, InvalidArgumentError
from jflow.plan.apart.messages import ApartMessage, MessageKind, receive, send
from jflow.plan.apart.process import ApartProcess
from jflow.plan.compiler import Compiler, compiler
from jflow.plan.compiler.requests import encoded
from jflow.plan.xla.compilation import compile_here
from jflow.plan.xla.compile import compile_exported, is_bounded, memory_of
from jflow.plan.xla.export import serialize
from jflow.plan.xla.hardware import in_mesh, mesh_of_axes, mesh_on
from jflow.plan.xla.validation import ValidProgram, inspected
from jflow.testing import PATIENCE_S, wait_until
from tests.plan.compiler.failing import CRASHES, ENDLESS, UNSERIALIZABLE

CPU = jax.devices("cpu")[0]
FAILING = replace(compiler.JOB, module="tests.plan.compiler.failing")
AXES = (("x", 2),)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 6)).astype(np.float32)
SPD = X @ X.T + 6 * np.eye(6, dtype=np.float32)


def exported(fun: Callable[..., Any], *args: Any, axes: Any = ()) -> ValidProgram:
    def flat(*args: Any) -> list[Any]:
        return jax.tree.leaves(fun(*args))

    with jax.enable_x64(True), in_mesh(mesh_of_axes(axes) if axes else mesh_of_axes((("_", 1),))):
        return inspected(bytes(serialize(jax.make_jaxpr(flat)(*args), "cpu", axes)))


def of_size(number: int) -> ValidProgram:
    return exported(lambda x: x + 1, np.zeros(number, np.float32))


def random_numbers(key: Any) -> Any:
    key = jax.random.wrap_key_data(key)
    return jax.random.normal(key, (20,)), jax.random.permutation(key, 9)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "a scalar": (lambda x: x + 1, (np.float32(2),)),
    "nothing given": (lambda: jnp.arange(5) * 2, ()),
    "a while loop": (
        lambda x: jax.lax.while_loop(lambda c: jnp.sum(c) < 1000, lambda c: c * 1.5 + 1, x),
        (np.abs(X),),
    ),
    "a bounded loop": (lambda x: jax.lax.fori_loop(0, 5, lambda _, c: jnp.tanh(c @ c), x), (X,)),
    "LAPACK": (lambda a, b: (jnp.linalg.cholesky(a), jnp.linalg.solve(a, b)), (SPD, X)),
    "eigenvalues": (jnp.linalg.eigh, (SPD,)),
    "random numbers": (random_numbers, (np.array([0, 42], np.uint32),)),
    "64 bits": (lambda x: (x @ x, (x * 1e9).astype(jnp.int64)), (X.astype(np.float64),)),
    "a gradient": (jax.value_and_grad(lambda w: jnp.mean(jnp.tanh(X @ w) ** 2)), (X,)),
}


@pytest.fixture(scope="module")
def apart() -> Iterator[Compiler]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "JOB", FAILING)
        patch.setattr("jflow.plan.apart.process._TICK_S", 0.05)
        patch.setattr(compiler, "_n_most", lambda: 1)
        apart = Compiler()
        yield apart
        apart.close()
    assert apart.pids == []


@pytest.fixture
def only_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is compiled in this process is an error."""

    def fail(_: Any) -> None:
        raise AssertionError("a program is compiled in this process")

    monkeypatch.setattr(compiler, "compile_here", fail)


def assert_same(found: Any, wanted: Any) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other), strict=True)
        assert one.sharding == other.sharding


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.usefixtures("only_apart")
def test_a_program_that_another_process_compiled_gives_the_same_bits(
    name: str, apart: Compiler
) -> None:
    fun, args = PROGRAMS[name]
    valid = exported(fun, *args)
    with jax.enable_x64(True):
        here = compile_exported(valid, CPU, ())
        there = compile_exported(valid, CPU, (), apart.compile)
        assert_same(there(*args), here(*args))
    assert is_bounded(there) == is_bounded(here)
    assert memory_of(there) == memory_of(here)


@pytest.mark.usefixtures("only_apart")
def test_donated_arguments_are_consumed_and_others_are_refused(apart: Compiler) -> None:
    program = compile_exported(exported(lambda x: x * 2, X), CPU, (0,), apart.compile)
    given = jax.device_put(X, CPU)
    np.testing.assert_array_equal(program(given)[0], X * 2)
    assert given.is_deleted()
    with pytest.raises(TypeError, match="int32"):
        program(X.astype(np.int32))


@pytest.mark.usefixtures("only_apart")
def test_a_program_for_a_mesh_keeps_shardings_and_gives_the_same_bits(apart: Compiler) -> None:
    mesh = mesh_on(AXES, jax.devices("cpu")[:2][::-1])
    valid = exported(lambda a, b: (a @ b, a.sum()), X, X, axes=AXES)
    rows = NamedSharding(mesh, P("x"))
    found = [
        compile_exported(valid, mesh, (), by)(jax.device_put(X, rows), X, kept=(rows,))
        for by in (apart.compile, compile_here)
    ]
    assert_same(*found)
    assert found[0][0].sharding == rows


@pytest.mark.usefixtures("only_apart")
def test_a_program_of_any_sizes_is_compiled_for_each(apart: Compiler) -> None:
    (n,) = jax.export.symbolic_shape("n")
    valid = exported(jnp.cumsum, jax.ShapeDtypeStruct((n,), np.float32))
    program = compile_exported(valid, CPU, (), apart.compile)
    for size in (3, 5, 3):
        np.testing.assert_array_equal(program(np.ones(size, np.float32))[0], np.arange(size) + 1)
    assert not is_bounded(program), "it waits for the other process"
    with pytest.raises(InvalidArgumentError, match="cannot be compiled for"):
        program(np.ones((2, 2), np.float32))


def test_what_xla_refuses_is_refused_by_the_same_words(apart: Compiler) -> None:
    errors = []
    for by in (compile_here, apart.compile):
        gpu = bytes(serialize(jax.make_jaxpr(lambda x: [x + 1])(X), "cuda"))
        with pytest.raises(InvalidArgumentError) as caught:
            compile_exported(inspected(gpu), CPU, (), by)
        errors.append(caught.value.message)
    assert errors[0] == errors[1]
    assert "cannot be compiled for" in errors[0]


def test_a_program_that_crashes_the_compiler_is_refused_from_then_on(apart: Compiler) -> None:
    crashing, good = of_size(CRASHES), of_size(5)
    words = []
    for _ in range(2):
        with pytest.raises(
            InternalError, match=r"ended with SIGSEGV .* program \w{12} of"
        ) as caught:
            compile_exported(crashing, CPU, (), apart.compile)
        words.append(caught.value.message)
        pids = apart.pids
    assert words[0] == words[1]
    (result,) = compile_exported(good, CPU, (), apart.compile)(np.zeros(5, np.float32))
    np.testing.assert_array_equal(result, np.ones(5))
    assert pids in ([], apart.pids), "the second refusal has ended no process"


@pytest.mark.usefixtures("only_apart")
def test_a_compiler_that_is_killed_before_it_begins_is_not_noticed(apart: Compiler) -> None:
    compile_exported(of_size(6), CPU, (), apart.compile)
    (pid,) = apart.pids
    os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as threads:  # it does not take the program
        waiting = threads.submit(compile_exported, of_size(7), CPU, (), apart.compile)
        wait_until(lambda: apart._queue._lanes[0].is_busy)
        os.kill(pid, signal.SIGKILL)
        (result,) = waiting.result(PATIENCE_S)(np.zeros(7, np.float32))
    np.testing.assert_array_equal(result, np.ones(7))
    assert not psutil.pid_exists(pid), "not even a zombie"


def test_an_idle_compiler_that_dies_is_started_again(apart: Compiler) -> None:
    apart.start()
    wait_until(lambda: apart.pids)
    (pid,) = apart.pids
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(pid) and apart.pids not in ([], [pid]))
    apart.stop()


def test_a_program_that_takes_very_long_gives_way_when_another_one_waits(
    apart: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "_LONG_S", 0.0)
    with ThreadPoolExecutor(1) as threads:
        endless = threads.submit(compile_exported, of_size(ENDLESS), CPU, (), apart.compile)
        wait_until(lambda: apart._queue._lanes[0].is_busy)
        assert not endless.done()
        compile_exported(of_size(8), CPU, (), apart.compile)
        with pytest.raises(DeadlineExceededError, match="and other programs wait"):
            endless.result(PATIENCE_S)


def test_a_compiler_ends_with_the_process_that_it_works_for_also_while_it_compiles() -> None:
    process = ApartProcess(FAILING)
    process.await_ready()
    data = encoded(_request(ENDLESS))
    assert data is not None
    send(process._socket, ApartMessage(MessageKind.WORK, data))
    assert receive(process._socket, 0).kind is MessageKind.BEGUN
    process._socket.close()  # as the end of this process would
    process._process.wait(PATIENCE_S)
    process.end()
    assert process.how_it_ended == "the exit code 0"


def test_a_program_that_cannot_be_passed_on_is_compiled_here(apart: Compiler) -> None:
    program = compile_exported(of_size(UNSERIALIZABLE), CPU, (), apart.compile)
    (result,) = program(np.zeros(UNSERIALIZABLE, np.float32))
    np.testing.assert_array_equal(result, np.ones(UNSERIALIZABLE))


def test_programs_are_compiled_at_once_where_there_are_processors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiler, "_n_most", lambda: 2)
    monkeypatch.setattr(compiler, "JOB", FAILING)
    apart = Compiler()
    endless = threading.Thread(
        target=pytest.raises, args=(InternalError, apart.compile, _request(ENDLESS))
    )
    endless.start()
    wait_until(lambda: apart._queue._lanes[0].is_busy)
    apart.compile(_request(9))
    assert len(apart.pids) == 2
    apart.close()
    endless.join()
    assert apart.pids == []


def _request(size: int) -> Any:
    requests: list[Any] = []
    with pytest.raises(InvalidArgumentError):
        compile_exported(of_size(size), CPU, (), lambda one: requests.append(one) or 1 / 0)
    return requests[0]

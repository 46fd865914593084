"""What JAX cannot do for a function elsewhere is said by operation, line and advice."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import sparse
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jflow as tf
from tests.clusters import Backend

HERE = re.escape(__file__)
TWO = Mesh(np.array(jax.local_devices(backend="cpu")[:2]), ("x",))
EACH = PartitionSpec("x")

Function = Callable[[Any], Any]


def _pivoted(x: Any) -> Any:
    return jax.scipy.linalg.qr(x, pivoting=True)[0]


def _sparse(x: Any) -> Any:
    parts = x[:, 0], jnp.arange(3), jnp.arange(4)
    return sparse.BCSR(parts, shape=(3, 3)) @ x


def _nested(x: Any) -> Any:
    return jax.lax.cond(x.sum() > 0, jax.jit(_sparse), lambda x: x, x)


@pytest.mark.parametrize("fun", [_sparse, _nested])
def test_native_functions_without_a_promise_run_here_and_are_refused_for_other_tasks(
    connection: tf.function.Connection, backend: Backend, fun: Function
) -> None:
    x = jnp.eye(3)
    if backend.name == "local":
        np.testing.assert_array_equal(tf.function(fun)(x), jax.jit(fun)(x))
        return
    with pytest.raises(tf.errors.UnimplementedError) as caught:
        tf.function(fun)(x)
    said = str(caught.value)
    assert re.search(rf"operation '\w+': '\w+' \(at {HERE}:\d+ in \w+\)", said)
    assert "cpu_csr_sparse_dense_ffi" in said
    assert "use another algorithm" in said
    assert "stablehlo" not in said


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: jax.shard_map(jnp.sin, mesh=TWO, in_specs=EACH, out_specs=EACH)(x * 2),
        lambda x: jax.lax.with_sharding_constraint(x, NamedSharding(TWO, EACH)),
        lambda x: jax.jit(jnp.sin, in_shardings=NamedSharding(TWO, EACH))(x * 2),
        lambda x: jax.lax.scan(
            lambda c, _: (jax.device_put(c, NamedSharding(TWO, EACH)), None), x, length=2
        )[0],
    ],
    ids=["shard_map", "constraint", "jit", "device_put in a loop"],
)
def test_meshes_of_several_devices_are_refused(
    connection: tf.function.Connection, fun: Function
) -> None:
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=rf"at {HERE}:\d+ .*requires a mesh with the axes x=2.*jflow\.device",
    ):
        tf.function(fun)(jnp.ones(4))


def test_a_mesh_of_several_devices_around_a_call_is_refused(
    connection: tf.function.Connection,
) -> None:
    with (
        jax.set_mesh(TWO),
        pytest.raises(tf.errors.UnimplementedError, match=r"2 devices.*jflow\.device"),
    ):
        tf.function(lambda x: x * 2)(jnp.ones(4))


def test_an_array_on_several_devices_is_an_argument_like_any_other(
    connection: tf.function.Connection,
) -> None:
    divided = jax.device_put(jnp.ones(4), NamedSharding(TWO, EACH))
    doubled = tf.function(lambda x: x * 2)
    for _ in range(2):
        np.testing.assert_array_equal(doubled(divided), [2.0] * 4)


def test_what_the_platform_does_not_have_names_the_line(
    connection: tf.function.Connection,
) -> None:
    algorithm = jax.lax.linalg.SvdAlgorithm.JACOBI
    with pytest.raises(
        tf.errors.UnimplementedError,
        match=rf"'svd' \(at {HERE}:\d+ .*platform 'cpu': .*not implemented on CPU",
    ):
        tf.function(lambda x: jax.lax.linalg.svd(x, algorithm=algorithm)[1])(jnp.eye(3))


def test_a_size_that_has_to_be_known_names_the_line(backend: Backend) -> None:
    with tf.Graph().as_default() as graph, backend.session() as session:
        x = tf.placeholder("float32", (None, 3))
        given = {x: np.ones((4, 3), np.float32)}
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match=rf"'qr' \(at {HERE}:\d+ in .*inconclusive",
        ):
            session.run(graph.apply(_pivoted, (x,)), given)


def test_linear_algebra_on_batches_of_any_size_is_checked_and_runs(backend: Backend) -> None:
    def factor(x: Any) -> Any:
        return jnp.linalg.cholesky(x[:, None, :] * x[:, :, None] + jnp.eye(3))

    with tf.Graph().as_default() as graph, backend.session() as session:
        x = tf.placeholder("float32", (None, 3))
        found = graph.apply(factor, (x,))
        for n in (2, 4, 2):
            rows = np.ones((n, 3), np.float32)
            np.testing.assert_allclose(session.run(found, {x: rows}), factor(rows), rtol=1e-6)


def _mismatched(a: Any, b: Any) -> Any:
    letters = {"side": "L", "uplo": "L", "trans_x": "N", "diag": "N"}
    options = {name: np.uint8(ord(letter)) for name, letter in letters.items()}
    result = jax.ShapeDtypeStruct(b.shape, b.dtype)
    return jax.ffi.ffi_call("lapack_strsm_ffi", result)(a, b, **options)


def test_a_native_call_whose_sizes_disagree_does_not_end_the_server(
    connection: tf.function.Connection, backend: Backend
) -> None:
    if backend.name == "local":
        pytest.skip("a program of this process is its own affair")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"triangle of 3 rows .*3000000 x 1"):
        tf.function(_mismatched)(jnp.eye(3), jnp.ones((3_000_000, 1)))
    assert tf.function(lambda x: x + 1)(1.0) == 2.0
    assert tf.function(_mismatched)(jnp.eye(3), jnp.ones((3, 2))).shape == (3, 2)


# While tracing ---------------------------------------------------------------------------------


def _branches(x: Any) -> Any:
    y = x + 1
    if y > 0:
        return x
    return -x


@pytest.mark.parametrize(
    ("fun", "kind"),
    [
        (_branches, jax.errors.TracerBoolConversionError),
        (lambda x: [1, 2][x], jax.errors.TracerIntegerConversionError),
        (lambda x: np.asarray(x), jax.errors.TracerArrayConversionError),  # noqa: PLW0108
    ],
)
def test_what_needs_a_value_names_function_argument_and_line(
    fun: Function, kind: type[Exception]
) -> None:
    with tf.connect(), pytest.raises(kind) as caught:
        tf.function(fun)(1)
    assert re.search(rf"tracing the function \S+ at {HERE}:\d+ for jit", str(caught.value))
    assert "the argument x" in str(caught.value)
    assert any(re.search(rf"needed at {HERE}:\d+ in ", n) for n in caught.value.__notes__)


def test_an_argument_with_parts_is_named_by_its_part() -> None:
    with tf.connect(), pytest.raises(jax.errors.TracerBoolConversionError) as caught:
        tf.function(lambda tree: 1 if tree["a"] else 2)({"a": 1.0, "b": 2.0})
    assert "the argument tree_a" in str(caught.value)


@pytest.mark.parametrize("call", [jax.jit, tf.function], ids=["jit", "function"])
@pytest.mark.parametrize(
    ("fun", "argument"),
    [
        (lambda x: x + 1, 2**40),
        (lambda x: x["n"], {"n": -(2**40)}),
        (lambda x: x + 2**40, 1),
        (lambda x: [x, 2**40], 1),
    ],
    ids=["argument", "part of an argument", "in the function", "result"],
)
def test_an_integer_that_is_too_large_is_an_overflow_as_under_jit(
    call: Any, fun: Function, argument: Any
) -> None:
    with tf.connect(), pytest.raises(OverflowError):
        call(fun)(argument)


def test_a_ref_is_no_argument_or_result_and_its_value_is() -> None:
    ref = jax.new_ref(jnp.ones(3))
    with tf.connect():
        for argument in (ref, {"a": ref}):
            with pytest.raises(TypeError, match=r"Ref.*ref\[\.\.\.\], and return.*jflow\.Variable"):
                tf.function(lambda x: x)(argument)
        with pytest.raises(TypeError, match=r"Ref.*return its value, ref\[\.\.\.\]"):
            tf.function(lambda x: jax.new_ref(x))(1.0)  # noqa: PLW0108
        with pytest.raises(NotImplementedError, match=rf"'get' \(at {HERE}.*a jax.Ref is made and"):
            tf.function(lambda x: ref[...] + x)(1.0)
        with pytest.raises(NotImplementedError, match=rf"'get' \(at {HERE}.*has not made"):
            tf.function(lambda x: jax.new_ref(x)[...] + ref[...])(1.0)
        np.testing.assert_array_equal(tf.function(lambda x: x * 2)(ref[...]), [2.0] * 3)


def test_an_unimplemented_error_is_caught_as_python_names_it() -> None:
    error = tf.errors.UnimplementedError("cannot do that")
    assert isinstance(error, NotImplementedError)
    assert isinstance(error, tf.errors.OpError)

"""Native functions that programs from elsewhere may call, and how."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.lax import linalg

from jflow.errors import InvalidArgumentError
from jflow.plan import xla
from jflow.plan.xla import internals
from jflow.plan.xla.custom_calls import (
    WITHOUT_GUARANTEE,
    CallBuffer,
    CustomCall,
    check_custom_calls,
)
from jflow.plan.xla.native_calls import native_call

CPU = jax.local_devices(backend="cpu")[0]
SQUARE, TALL, WIDE, ROWS = (5, 3, 3), (5, 4, 3), (5, 3, 4), (5, 3)
QR = linalg.SvdAlgorithm.QR


def custom_calls(exported: jax.export.Exported) -> list[CustomCall]:
    """The native calls of a program."""
    found: list[CustomCall] = []

    def look(operation: Any) -> Any:
        if operation.name == "stablehlo.custom_call":
            found.append(native_call(operation))
        return internals.MLIR.WalkResult.ADVANCE

    with internals.program_context():
        internals.parsed_program(exported.mlir_module_serialized).operation.walk(look)
    return found


def _svd(**options: Any) -> Callable[[Any], Any]:
    return lambda x: linalg.svd(x, **options)


EVERYWHERE: list[tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = [
    (linalg.cholesky, (SQUARE,)),
    (lambda x: linalg.qr(x, full_matrices=False), (TALL,)),
    (lambda x: linalg.qr(x, full_matrices=False), (WIDE,)),
    (linalg.eigh, (SQUARE,)),
    (linalg.lu, (TALL,)),
    (linalg.svd, (TALL,)),
    (lambda a, b: linalg.triangular_solve(a, b, left_side=True), (SQUARE, (5, 3, 2))),
    (lambda a, b: linalg.triangular_solve(a, b, left_side=False), (SQUARE, (5, 2, 3))),
]

PRODUCTS: list[tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = [
    (linalg.ormqr, (TALL, ROWS, (5, 4, 2))),
    (lambda a, t, c: linalg.ormqr(a, t, c, transpose=True), (WIDE, ROWS, (5, 3, 2))),
    (lambda a, t, c: linalg.ormqr(a, t, c, left=False), (TALL, (5, 2), (5, 2, 4))),
    (
        lambda *args: linalg.tridiagonal_solve(*args, perturb_singular=True),
        (ROWS, ROWS, ROWS, (5, 3, 2)),
    ),
]

ON_PLATFORM: dict[str, list[tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]]] = {
    "cpu": [
        (linalg.eig, (SQUARE,)),
        (linalg.schur, (SQUARE,)),
        (linalg.hessenberg, (SQUARE,)),
        (linalg.tridiagonal, (SQUARE,)),
        (linalg.tridiagonal_solve, (ROWS, ROWS, ROWS, (5, 3, 2))),
        (_svd(full_matrices=False), (WIDE,)),
        (_svd(compute_uv=False), (TALL,)),
        (_svd(full_matrices=False, compute_uv=False), (WIDE,)),
        (_svd(algorithm=QR), (TALL,)),
        (_svd(algorithm=QR, full_matrices=False), (WIDE,)),
        (lambda x: linalg.qr(x, pivoting=True, full_matrices=False), (TALL,)),
        *PRODUCTS,
    ],
    "cuda": [
        *PRODUCTS,
        (linalg.tridiagonal, (SQUARE,)),
        (linalg.tridiagonal_solve, (ROWS, ROWS, ROWS, (5, 3, 2))),
        (_svd(algorithm=QR), (TALL,)),
        (_svd(algorithm=QR), (WIDE,)),
        (_svd(algorithm=QR, full_matrices=False), (WIDE,)),
        (_svd(algorithm=QR, compute_uv=False), (WIDE,)),
    ],
    "tpu": [(lambda x: jax.lax.approx_max_k(x, 2), ((3, 7),))],
}


def _calls(platform: str, dtype: Any = np.float32) -> list[CustomCall]:
    """The native calls that JAX makes for linear algebra on a platform."""
    programs = EVERYWHERE + ON_PLATFORM[platform]
    args = [[jax.ShapeDtypeStruct(shape, dtype) for shape in shapes] for _, shapes in programs]

    def run(args: list[list[Any]]) -> Any:
        return [program(*each) for (program, _), each in zip(programs, args, strict=True)]

    checks = [*map(jax.export.DisabledSafetyCheck.custom_call, WITHOUT_GUARANTEE)]
    export = jax.export.export(jax.jit(run), platforms=[platform], disabled_checks=checks)
    return custom_calls(export(args))


@pytest.fixture(scope="module")
def calls() -> dict[str, list[CustomCall]]:
    return {platform: _calls(platform) for platform in ON_PLATFORM}


@pytest.mark.parametrize(("platform", "n"), [("cpu", 16), ("cuda", 12), ("tpu", 5)])
def test_what_jax_itself_calls_is_allowed(
    calls: dict[str, list[CustomCall]], platform: str, n: int
) -> None:
    check_custom_calls(calls[platform])
    assert len({call.target for call in calls[platform]}) >= n


def test_complex_numbers_are_allowed_too() -> None:
    found = _calls("cpu", np.complex64)
    check_custom_calls(found)
    assert {call.target[:8] for call in found} == {"lapack_c", "tridiago"}


def _changed(call: CustomCall) -> list[CustomCall]:
    """The call with one size, type or batch of one buffer changed, or one buffer left out."""
    found = []
    buffers = [*call.operands, *call.results]
    n = len(call.operands)
    for i, buffer in enumerate(buffers):
        other = "f64" if buffer.dtype != "f64" else "f32"
        others = [
            replace(buffer, shape=(7, *buffer.shape)),
            replace(buffer, shape=buffer.shape[1:]),
            replace(buffer, dtype=other),
        ]
        others += [
            replace(buffer, shape=(*buffer.shape[:d], size, *buffer.shape[d + 1 :]))
            for d in range(len(buffer.shape))
            for size in (buffer.shape[d] + 1, 1_000_000, -1)
        ]
        for changed in others:
            if changed != buffer:
                new = [*buffers[:i], changed, *buffers[i + 1 :]]
                found.append(replace(call, operands=tuple(new[:n]), results=tuple(new[n:])))
    return [*found, replace(call, operands=()), replace(call, results=call.results[1:])]


@pytest.mark.parametrize("platform", list(ON_PLATFORM))
def test_a_call_with_one_buffer_changed_is_refused(
    calls: dict[str, list[CustomCall]], platform: str
) -> None:
    for call in calls[platform]:
        if any(name in call.target for name in ("pivots", "Householder", "mqr")):
            continue  # these take fewer, too
        if call.attributes.get("mode") == ord("N"):
            continue  # some results are not looked at
        for changed in _changed(call):
            with pytest.raises(InvalidArgumentError, match=r"do not fit"):
                check_custom_calls([changed])


def test_more_pivots_than_rows_are_refused() -> None:
    pivots, rows = CallBuffer((5,), "i32"), CallBuffer((4,), "i32")
    check_custom_calls([CustomCall("cu_lu_pivots_to_permutation", (rows,), (pivots,), {})])
    with pytest.raises(InvalidArgumentError, match="5 pivots"):
        check_custom_calls([CustomCall("cu_lu_pivots_to_permutation", (pivots,), (rows,), {})])


@pytest.mark.parametrize("target", ["lapack_sormqr_ffi", "cusolver_ormqr_ffi"])
@pytest.mark.parametrize(
    ("left", "shapes"),
    [
        (True, [(3, 3), (3,), (4, 2)]),  # reflectors of another size than the columns
        (False, [(4, 3), (3,), (4, 2)]),  # ... than the rows
        (True, [(4, 3), (4,), (4, 2)]),  # more reflectors than columns
        (True, [(2, 3), (3,), (2, 2)]),  # ... than their size
        (True, [(2, 4, 3), (3,), (2, 4, 2)]),  # reflectors of one product for several
        (True, [(4, 3), (2, 3), (4, 2)]),
        (True, [(2, 4, 3), (2, 3), (4, 2)]),
        (True, [(4, 3), (3,), (-1, 2)]),  # unknown when it is compiled
    ],
)
def test_a_product_with_reflectors_that_do_not_fit_is_refused(
    target: str, left: bool, shapes: list[tuple[int, ...]]
) -> None:
    def call(left: Any, *shapes: tuple[int, ...]) -> CustomCall:
        buffers = tuple(CallBuffer(shape, "f32") for shape in shapes)
        options = {"left": left, "transpose": False}
        return CustomCall(target, buffers, (buffers[2],), options)

    check_custom_calls([call(True, (4, 3), (3,), (4, 2)), call(False, (4, 3), (2,), (2, 4))])
    with pytest.raises(InvalidArgumentError, match="do not fit"):
        check_custom_calls([call(left, *shapes)])
    wrong_type = replace(call(True, (4, 3), (3,), (4, 2)), results=(CallBuffer((4, 2), "f64"),))
    other_result = replace(wrong_type, results=(CallBuffer((4, 3), "f32"),))
    for wrong in (wrong_type, other_result):
        with pytest.raises(InvalidArgumentError, match="do not fit"):
            check_custom_calls([wrong])


def test_every_lapack_function_that_jax_registers_is_allowed_in_its_form() -> None:
    lapack = importlib.import_module("jaxlib.lapack")
    registered = [name for name, *_ in lapack.registrations()["cpu"]]
    assert len(registered) > 60
    for name in registered:
        with pytest.raises(InvalidArgumentError, match="do not fit"):
            check_custom_calls([CustomCall(name, (), (), {})])


def test_functions_without_a_guarantee_are_those_that_jax_does_not_export() -> None:
    lapack = importlib.import_module("jaxlib.lapack")
    assert {name for name in WITHOUT_GUARANTEE if name[:3] not in ("cu_", "cus", "hip")} == {
        name for name, *_ in lapack.registrations()["cpu"] if not _is_guaranteed(name)
    }


def _is_guaranteed(target: str) -> bool:
    """Whether JAX exports a call of a native function."""

    def call(x: Any) -> Any:
        return jax.ffi.ffi_call(target, jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    try:
        jax.export.export(jax.jit(call), platforms=["cpu"])(jnp.ones(()))
    except ValueError as error:
        return "no compatibility guarantees" not in str(error)
    return True


def test_an_option_that_lapack_does_not_know_is_refused(
    calls: dict[str, list[CustomCall]],
) -> None:
    tried = set()
    for call in calls["cpu"]:
        for name in call.attributes if call.target.startswith("lapack") else ():
            changed = replace(call, attributes={**call.attributes, name: 79})
            with pytest.raises(InvalidArgumentError, match="option"):
                check_custom_calls([changed])
            tried.add(name)
    assert tried >= {"uplo", "mode", "side", "trans_x", "diag", "sort", "low", "high"}


@pytest.mark.parametrize(
    "target",
    ["", "system", "xla_python_cpu_callback", "tpu_custom_call", "cpu_csr_sparse_dense_ffi"],
)
def test_other_functions_are_refused(target: str) -> None:
    with pytest.raises(InvalidArgumentError, match="not allowed here"):
        check_custom_calls([CustomCall(target, (), (), {})])


def test_sizes_that_come_with_the_call_are_checked_then() -> None:
    def solve(a: Any, b: Any) -> Any:
        letters = {"side": "L", "uplo": "L", "trans_x": "N", "diag": "N"}
        options = {name: np.uint8(ord(letter)) for name, letter in letters.items()}
        result = jax.ShapeDtypeStruct(b.shape, b.dtype)
        return jax.ffi.ffi_call("lapack_strsm_ffi", result)(a, b, **options)

    n, m = jax.export.symbolic_shape("n, m")
    shapes = [jax.ShapeDtypeStruct(shape, np.float32) for shape in ((n, n), (m, 2))]
    data = bytes(jax.export.export(jax.jit(lambda a, b: [solve(a, b)]))(*shapes).serialize())
    executable = xla.compile_exported(xla.inspected(data), CPU, ())
    for _ in range(2):
        (found,) = executable(jnp.eye(3), jnp.ones((3, 2)))
        np.testing.assert_array_equal(found, np.ones((3, 2)))
    with pytest.raises(InvalidArgumentError, match="triangle of 3 rows for a matrix of 4 x 2"):
        executable(jnp.eye(3), jnp.ones((4, 2)))


@pytest.mark.parametrize("shape", [(64, 40), (40, 64), (64, 64)])
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("platform", ["cuda", "rocm"])
def test_singular_values_of_every_shape_are_allowed_on_gpus(
    shape: tuple[int, int], full: bool, platform: str
) -> None:
    def decompose(x: Any) -> Any:
        return jnp.linalg.svd(x, full_matrices=full)

    x = jax.ShapeDtypeStruct(shape, jnp.float32)
    exported = jax.export.export(jax.jit(decompose), platforms=[platform])(x)
    calls = custom_calls(exported)
    assert calls
    check_custom_calls(calls)

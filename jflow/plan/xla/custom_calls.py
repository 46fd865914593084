"""Allowlist of native functions, with their arguments, for programs from other processes.

A native function reads the sizes of all its buffers from one of them and trusts the others; if
they disagree, it accesses memory out of bounds and can crash the process. A program that arrives
over the wire is safe only if it calls nothing but these functions, in the way JAX's lowerings do.
Types, sizes and options are therefore compared with a *signature* before the program is compiled.

In a signature "T[m,n] -> T[m,n] T[k]" the letters in brackets are the last sizes of a buffer; the
batch sizes before them are the same for all buffers. `k` is min(m, n), `p` is n - 1, x, u, v and y
depend on options (see `_derived`), and q, j and h on each other (see `_check_reflectors`). "T()" is
a scalar, whatever the batch is.
T is the type of the first operand, R and C its real and complex form, I is int32, U is uint32.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from jflow.errors import InvalidArgumentError

UNKNOWN = -1
"""Stands for a dynamic size."""


@dataclass(frozen=True)
class CallBuffer:
    """An operand or result of a native call: its sizes and MLIR element type."""

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join('None' if n == UNKNOWN else str(n) for n in self.shape)}]"


@dataclass(frozen=True)
class CustomCall:
    """A call of a native function in a StableHLO program."""

    target: str
    operands: tuple[CallBuffer, ...]
    results: tuple[CallBuffer, ...]
    attributes: dict[str, Any]

    def __str__(self) -> str:
        sides = (" ".join(map(str, side)) for side in (self.operands, self.results))
        options = ", ".join(f"{name}={value}" for name, value in self.attributes.items())
        return f"{' -> '.join(sides)}" + (f" with {options}" if options else "")


_SIGNATURES = {
    # LAPACK on a CPU, behind "lapack_" and the letter of the type.
    "potrf": "T[n,n] -> T[n,n] I[]",
    "geqrf": "T[m,n] -> T[m,n] T[k]",
    "orgqr": "T[m,n] T[r] -> T[m,n]",
    "syevd": "T[n,n] -> T[n,n] R[n] I[]",
    "real geev": "T[n,n] -> T[n] T[n] C[n,n] C[n,n] I[]",
    "complex geev": "T[n,n] -> T[n] T[n,n] T[n,n] I[]",
    "gesdd": "T[m,n] -> T[m,n] R[k] T[x,u] T[v,y] I[]",
    "getrf": "T[m,n] -> T[m,n] I[k] I[]",
    "sytrd": "T[n,n] -> T[n,n] R[n] R[p] T[p] I[]",
    "gehrd": "T[n,n] -> T[n,n] T[p] I[]",
    "real gees": "T[n,n] -> T[n,n] T[n,n] T[n] T[n] I[] I[]",
    "complex gees": "T[n,n] -> T[n,n] T[n,n] T[n] I[] I[]",
    "trsm": "T[a,a] T[m,n] -> T[m,n]",
    "gtsv": "T[n] T[n] T[n] T[n,m] -> T[n] T[n] T[n] T[n,m] I[]",
    "ormqr": "T[q,j] T[h] T[m,n] -> T[m,n]",
    "geqp3": "T[m,n] I[n] -> T[m,n] I[n] T[k]",
    "gesvd": "T[m,n] -> T[m,n] R[k] T[x,u] T[v,y] I[]",
    # JAX's own function on a CPU.
    "tridiagonal_solve_perturbed_ffi": "T[n] T[n] T[n] T[n,m] -> T[n,m]",
    # cuSOLVER and hipSOLVER.
    "solver_potrf": "T[n,n] -> T[n,n] I[]",
    "solver_geqrf": "T[m,n] -> T[m,n] T[k]",
    "solver_orgqr": "T[m,n] T[r] -> T[m,n]",
    "solver_ormqr": "T[q,j] T[h] T[m,n] -> T[m,n]",
    "solver_syevd": "T[n,n] -> T[n,n] R[n] I[]",
    "solver_gesvd": "T[m,n] -> T[m,n] R[k] T[x,u] T[v,y] I[]",
    "solver_gesvd of values": "T[m,n] -> T[m,n] R[k] T() T() I[]",
    "solver_gesvdj": "T[m,n] -> T[m,n] R[k] T[x,u] T[y,v] I[]",
    "solver_gesdd": "T[m,n] -> T[m,n] R[k] T[x,u] T[v,y] I[]",
    "solver_gesdd of values": "T[m,n] -> T[m,n] R[k] T() T() I[]",
    "solver_getrf": "T[m,n] -> T[m,n] I[k] I[]",
    "solver_sytrd": "T[n,n] -> T[n,n] R[n] R[p] T[p] I[]",
    "sparse_gtsv2": "T[n] T[n] T[n] T[n,m] -> T[n,m]",
    "lu_pivots_to_permutation": "I[s] -> I[m]",
    "threefry2x32": "U[] U[] U[] U[] -> U[] U[]",
    "tridiagonal_solve_perturbed": "T[n] T[n] T[n] T[n,m] -> T[n,m]",
    # What XLA replaces itself.
    "Qr": "T[m,n] -> T[m,n] T[k]",
    "ProductOfElementaryHouseholderReflectors": "T[m,n] T[r] -> T[m,n]",
    "Eigh": "T[n,n] -> T[n,n] R[n]",
    "LuDecomposition": "T[m,n] -> T[m,n] I[k] I[m]",
    "Sharding": "T[] -> T[]",
    "SPMDFullToShardShape": "T[] -> T[]",
    "SPMDShardToFullShape": "T[] -> T[]",
    "annotate_device_placement": "T[] -> T[]",
    "AllocateBuffer": "-> T[]",
}

_BY_XLA = frozenset(name for name in _SIGNATURES if name[0].isupper()) | {
    "annotate_device_placement"
}

_BY_NAME = _BY_XLA | {"tridiagonal_solve_perturbed_ffi"}
"""Functions whose signature has their whole name."""

_REPLACED = frozenset(
    {
        "shape_assertion",
        "stablehlo.dynamic_approx_top_k",
        "stablehlo.dynamic_reduce_window",
        "stablehlo.dynamic_rng_bit_generator",
        "stablehlo.dynamic_top_k",
    }
)
"""Calls that XLA or JAX replaces once sizes are known; no native function has these names."""

_LAPACK = re.compile(r"lapack_([sdcz])(\w+)_ffi")
_TYPES = {"s": "f32", "d": "f64", "c": "complex<f32>", "z": "complex<f64>"}
_ALIASES = {"ungqr": "orgqr", "unmqr": "ormqr", "heevd": "syevd", "hetrd": "sytrd"}
_GPU = re.compile(
    r"(?:cu|hip)(?:(solver|sparse)_(\w+)_ffi"
    r"|_(lu_pivots_to_permutation|threefry2x32_ffi|tridiagonal_solve_perturbed))"
)

_OPTIONS = {
    "uplo": "UL",
    "mode": "VN",
    "compute_left": "VN",
    "compute_right": "VN",
    "sort": "N",
    "side": "LR",
    "trans_x": "NTC",
    "diag": "NU",
}
"""The letters that LAPACK options may have; singular values have modes of their own."""

WITHOUT_GUARANTEE = (
    *(f"lapack_{kind}{name}_ffi" for name in ("geqp3", "gesvd") for kind in "sdcz"),
    *("lapack_sormqr_ffi", "lapack_dormqr_ffi", "lapack_cunmqr_ffi", "lapack_zunmqr_ffi"),
    *("cusolver_ormqr_ffi", "hipsolver_ormqr_ffi"),
    *("tridiagonal_solve_perturbed_ffi", "cu_tridiagonal_solve_perturbed"),
    "hip_tridiagonal_solve_perturbed",
)
"""Functions of these that JAX may change from version to version, so it exports no calls of them.

A server takes a call of one only with the buffers of its signature, and JAX's function refuses
options that it does not know.
"""

_REQUIRED = {
    "potrf": ("uplo",),
    "syevd": ("mode", "uplo"),
    "real geev": ("compute_left", "compute_right"),
    "complex geev": ("compute_left", "compute_right"),
    "gesdd": ("mode",),
    "gesvd": ("mode",),
    "sytrd": ("uplo",),
    "gehrd": ("low", "high"),
    "real gees": ("mode", "sort"),
    "complex gees": ("mode", "sort"),
    "trsm": ("side", "uplo", "trans_x", "diag"),
    "solver_potrf": ("lower",),
    "solver_syevd": ("lower",),
    "solver_gesvd": ("full_matrices", "compute_uv", "transposed"),
    "solver_gesvdj": ("full_matrices", "compute_uv"),
    "solver_gesdd": ("full_matrices", "compute_uv"),
    "solver_sytrd": ("lower",),
}
"""The options that a call must have, by its signature."""

_BUFFER = re.compile(r"([TRCIU])(?:\[([a-z,]*)\]|(\(\)))")


def check_custom_calls(calls: Iterable[CustomCall], *, sizes_known: bool = True) -> None:
    """Rejects calls of native functions that could corrupt memory of this process.

    Args:
      calls: the native calls of a program.
      sizes_known: whether all sizes are static. If not, only names are checked.

    Raises:
      InvalidArgumentError: if a function is not allowed, or its arguments do not match.
    """
    for call in calls:
        function = _function_of(call)
        signature = _SIGNATURES.get(function or "")
        is_top_k = call.target == "ApproxTopK"
        if signature is None and not is_top_k and call.target not in _REPLACED:
            raise InvalidArgumentError(
                "a program calls native functions that are not allowed here: "
                f"{call.target or 'unnamed'!r}"
            )
        try:
            if sizes_known and signature is not None:
                _check_options(call, function)
                _check_buffers(call, signature)
            elif sizes_known and is_top_k:
                _check_top_k(call)
        except _MisfitError as error:
            raise InvalidArgumentError(
                f"a program calls the native function {call.target!r} with arguments that do not "
                f"fit: {error}; got {call}"
            ) from None


class _MisfitError(Exception):
    """Raised for a call that does not match its signature."""


def is_native(call: CustomCall) -> bool:
    """Whether a call is still in the program once its sizes are known."""
    return call.target not in _REPLACED


def is_replaced_by_xla(call: CustomCall) -> bool:
    """Whether XLA or JAX replaces a call, so that it reaches no native function of its name."""
    return call.target in _BY_NAME or call.target in _REPLACED


def _function_of(call: CustomCall) -> str | None:
    """Returns the name of the signature for a call; None if its target is unknown."""
    target = call.target
    lapack = _LAPACK.fullmatch(target)
    if lapack is not None:
        name = _ALIASES.get(lapack[2], lapack[2])
        if name in ("geev", "gees"):
            name = ("real " if lapack[1] in "sd" else "complex ") + name
        return name
    gpu = _GPU.fullmatch(target)
    if gpu is not None:
        name = f"{gpu[1]}_{gpu[2]}" if gpu[1] else gpu[3].removesuffix("_ffi")
        has_form_of_values = f"{name} of values" in _SIGNATURES
        values_only = has_form_of_values and call.attributes.get("compute_uv") is False
        return f"{name} of values" if values_only else name
    return target if target in _BY_NAME else None


def _check_buffers(call: CustomCall, signature: str) -> None:
    wanted = [_BUFFER.findall(side) for side in signature.split("->")]
    buffers = [*call.operands, *call.results]
    if [len(side) for side in wanted] != [len(call.operands), len(call.results)]:
        raise _MisfitError(f"expected the signature {signature!r}")
    if any(UNKNOWN in buffer.shape for buffer in buffers):
        raise _MisfitError("not all sizes are known")
    patterns = [(kind, _letters(found), one) for side in wanted for kind, found, one in side]
    lapack = _LAPACK.fullmatch(call.target)
    dtype = _TYPES[lapack[1]] if lapack else buffers[0].dtype
    shape = buffers[0].shape
    batch = shape[: len(shape) - len(patterns[0][1])]
    sizes: dict[str, int] = {}
    for (kind, letters, one), buffer in zip(patterns, buffers, strict=True):
        n = len(buffer.shape) - len(letters)
        if n < 0 or buffer.shape[:n] != (() if one else batch):
            raise _MisfitError(f"{buffer} has another batch than {buffers[0]}, by {signature!r}")
        if buffer.dtype not in _dtypes(kind, dtype):
            raise _MisfitError(f"{buffer} has another type than in {signature!r}")
        for letter, size in zip(letters, buffer.shape[n:], strict=True):
            if sizes.setdefault(letter, size) != size:
                raise _MisfitError(
                    f"{buffer} has a size of {size} instead of {sizes[letter]}, by {signature!r}"
                )
        if buffer is buffers[0]:
            sizes |= _derived(call, **sizes)
    if "h" in sizes:
        _check_reflectors(call, **{letter: sizes[letter] for letter in "qjhmn"})
    else:
        _check_relations(call, **sizes)


def _letters(letters: str) -> list[str]:
    return letters.split(",") if letters else []


def _dtypes(kind: str, dtype: str) -> tuple[str, ...]:
    real = dtype.removeprefix("complex<").removesuffix(">")
    return {
        "T": (dtype,),
        "R": (real,),
        "C": (f"complex<{real}>",),
        "I": ("i32",),
        "U": ("ui32",),
    }[kind]


def _derived(call: CustomCall, *, n: int = 0, m: int | None = None, **_: Any) -> dict[str, int]:
    """Returns the sizes that follow from the options and the shape of the first operand."""
    if m is None:
        return {"p": max(n - 1, 0)}
    options, k = call.attributes, min(m, n)
    is_full = options.get("mode") == ord("A") or options.get("full_matrices") is True
    if options.get("mode") == ord("N"):
        # The factors are not computed and may be of either size.
        is_full = [r.shape[-2:] for r in call.results[2:4]] == [(m, m), (n, n)]
    rows, columns = (m, n) if is_full else (k, k)
    if options.get("transposed") is True:
        return {"k": k, "x": columns, "u": n, "v": m, "y": rows}
    return {"k": k, "x": m, "u": rows, "v": columns, "y": n}


def _check_relations(
    call: CustomCall,
    *,
    m: int = 0,
    n: int = 0,
    r: int = 0,
    s: int = 0,
    a: int | None = None,
    **_: Any,
) -> None:
    options = call.attributes
    if s > m:
        raise _MisfitError(f"got {s} pivots for {m} rows")
    if r and not r <= n <= m:
        raise _MisfitError(f"got {r} reflectors for a matrix of {m} x {n}")
    if a is not None and a != (m if options.get("side") == ord("L") else n):
        raise _MisfitError(f"got a triangle of {a} rows for a matrix of {m} x {n}")
    if (options.get("low", 1), options.get("high", n)) != (1, n):
        raise _MisfitError("expected the first and last row as the options 'low' and 'high'")


def _check_reflectors(call: CustomCall, *, q: int, j: int, h: int, m: int, n: int) -> None:
    """Checks the shapes of a product of a matrix with Householder reflectors."""
    left, transpose = (call.attributes.get(name) for name in ("left", "transpose"))
    if not (isinstance(left, bool) and isinstance(transpose, bool)):
        raise _MisfitError("expected true or false as the options 'left' and 'transpose'")
    if h > min(q, j) or q != (m if left else n):
        raise _MisfitError(f"got {h} reflectors in {q} x {j} numbers for a matrix of {m} x {n}")


def _check_options(call: CustomCall, function: str | None) -> None:
    required = _REQUIRED.get((function or "").removesuffix(" of values"), ())
    missing = [option for option in required if option not in call.attributes]
    if missing:
        raise _MisfitError(f"expected the option {missing[0]!r}")
    for name, value in call.attributes.items() if _LAPACK.fullmatch(call.target) else ():
        is_svd = "gesdd" in call.target or "gesvd" in call.target
        letters = "ASN" if is_svd else _OPTIONS.get(name)
        if letters is not None and not (type(value) is int and chr(value) in letters):
            raise _MisfitError(f"expected one of {', '.join(letters)} as the option {name!r}")


def _check_top_k(call: CustomCall) -> None:
    """Checks the sizes of an approximate top k, which XLA replaces by a sort without checks."""
    half = len(call.operands) // 2
    arrays, initial, results = call.operands[:half], call.operands[half:], call.results
    at, k = call.attributes.get("reduction_dim"), call.attributes.get("top_k")
    if not (half and len(initial) == len(results) == half):
        raise _MisfitError("expected as many initial values and results as arrays")
    shape = arrays[0].shape
    if UNKNOWN in shape:
        raise _MisfitError("not all sizes are known")
    if not (type(at) is int and type(k) is int and 0 <= at < len(shape) and 0 <= k <= shape[at]):
        raise _MisfitError("'reduction_dim' or 'top_k' is out of range")
    size = results[0].shape[at] if len(results[0].shape) == len(shape) else UNKNOWN
    expected = (*shape[:at], size, *shape[at + 1 :])
    for array, first, result in zip(arrays, initial, results, strict=True):
        wanted = (
            CallBuffer(shape, array.dtype),
            CallBuffer((), array.dtype),
            CallBuffer(expected, array.dtype),
        )
        if (array, first, result) != wanted or not k <= size <= shape[at]:
            raise _MisfitError("expected results like the arrays except in one dimension")

"""Cost model of single equations: arithmetic, memory traffic, and how XLA fuses them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum, IntEnum, auto
from typing import Any

import jax.extend.core as jex
import numpy as np

from jflow.base.values import is_known
from jflow.compiler.graph.primitives import is_on_host

Vector = np.ndarray[Any, np.dtype[np.float64]]

UNKNOWN_SIZE = 32
"""What an unknown size of a shape counts as."""

STRING_BYTES = 64
"""What a string counts as."""

KEY_BYTES = 8
"""What a random key counts as."""

NEAR_BYTES = 1 << 20
"""Arrays up to this size count as being in a cache of the processor."""


class Count(IntEnum):
    """Quantities that are counted; values are positions in the vectors of this file.

    Attributes:
      FLOPS: floating point operations of matrix products and decompositions.
      CONVOLUTIONS: floating point operations of convolutions.
      ELEMENTS: simple operations on one element each.
      TRANSCENDENTALS: exponentials, logarithms and the like, on one element each.
      NEAR_BYTES: bytes read and written of arrays of at most `NEAR_BYTES`.
      FAR_BYTES: bytes read and written of larger arrays.
      KERNELS: loops over arrays, and calls of libraries, that a program consists of.
      REDUCTIONS: kernels that end in a reduction; they are not among the others.
      ITERATIONS: kernels in the bodies of loops, which cost less, and one for each iteration.
      CALLS: calls of functions of the host.
      MESSAGES: messages of collectives that a device of a mesh sends one after another.
      SENT_BYTES: the bytes of the messages of all devices of a mesh.
    """

    FLOPS = 0
    CONVOLUTIONS = auto()
    ELEMENTS = auto()
    TRANSCENDENTALS = auto()
    NEAR_BYTES = auto()
    FAR_BYTES = auto()
    KERNELS = auto()
    REDUCTIONS = auto()
    ITERATIONS = auto()
    CALLS = auto()
    MESSAGES = auto()
    SENT_BYTES = auto()


N_COUNTS = len(Count)


class Fusion(Enum):
    FUSED = auto()
    """Computed where its result is used, if possible."""

    ROOT = auto()
    """Computed with what it uses; the result is in memory."""

    ALONE = auto()
    """Reads from memory and writes to memory."""


def size_of(aval: Any) -> float:
    """Returns the bytes of a value of a type, with guesses for unknown sizes and for strings."""
    dtype = getattr(aval, "dtype", None)
    if dtype is None:
        return 0.0
    is_string = dtype.name == "string"
    itemsize = STRING_BYTES if is_string else getattr(dtype, "itemsize", KEY_BYTES)
    return _elements(aval) * itemsize


def fusion_of(eqn: jex.JaxprEqn) -> Fusion:
    """Returns how XLA fuses an equation with others."""
    name = eqn.primitive.name
    is_library_call = name in _ALONE or name.startswith(("scatter", "cum"))
    if is_library_call or is_on_host(eqn) or is_nested(eqn):
        return Fusion.ALONE
    return Fusion.ROOT if is_reduction(name) else Fusion.FUSED


def work_of(eqn: jex.JaxprEqn) -> Vector:
    """Counts the arithmetic of an equation without a body; no bytes or kernels: f64[N_COUNTS]."""
    name = eqn.primitive.name
    n_results = sum(_elements(var.aval) for var in eqn.outvars)
    match name:
        case "dot_general":
            work = {Count.FLOPS: 2 * n_results * _contraction_length(eqn)}
        case "conv_general_dilated":
            work = {Count.CONVOLUTIONS: 2 * n_results * _window(eqn)}
        case "sort" | "top_k":
            work = {Count.ELEMENTS: _COMPARISON * n_results * math.log2(n_results + 2)}
        case _ if name.startswith("cum"):
            work = {Count.ELEMENTS: _CUMULATION * n_results * math.log2(n_results + 2)}
        case _ if name.startswith("reduce_window"):
            window = math.prod(eqn.params.get("window_dimensions", ()))
            work = {Count.ELEMENTS: _WINDOW_ELEMENT * n_results * window}
        case _ if name in _CUBIC:
            work = {Count.FLOPS: n_results * math.sqrt(n_results)}
        case _ if name in _TRANSCENDENTAL:
            work = {Count.TRANSCENDENTALS: n_results}
        case _ if name in _FREE_WHERE_USED:
            work = {}
        case _ if name.startswith("scatter"):
            work = {Count.ELEMENTS: sum(_elements(var.aval) for var in eqn.invars[2:])}
        case _ if is_reduction(name):
            work = {Count.ELEMENTS: sum(_elements(var.aval) for var in eqn.invars)}
        case _:
            work = {Count.ELEMENTS: n_results * _WEIGHTS.get(name, 1.0)}
    return vector(work)


def is_nested(eqn: jex.JaxprEqn) -> bool:
    """Whether an equation only runs the jaxprs in its parameters."""
    name = eqn.primitive.name
    has_small_body = is_reduction(name) or name.startswith(("scatter", "sort"))
    return not has_small_body and bool(bodies_of(eqn))


def is_reduction(name: str) -> bool:
    """Whether the primitive of this name reduces its arguments."""
    return name.startswith(("reduce", "argm")) and name != "reduce_precision"


def is_expensive(eqn: jex.JaxprEqn) -> bool:
    """Whether XLA computes it once instead of fusing it into each of several users."""
    return eqn.primitive.name in _TRANSCENDENTAL | _RANDOM


def touched_by(eqn: jex.JaxprEqn) -> float | None:
    """Returns a limit on the bytes touched of each argument and result; None if all are touched."""
    name = eqn.primitive.name
    if is_nested(eqn):
        return 0.0  # what a body reads and writes is counted there
    if name in _PARTIAL:
        return sum(size_of(var.aval) for var in eqn.outvars)
    if name == "dynamic_update_slice":
        return size_of(eqn.invars[1].aval)
    if name.startswith("scatter"):
        return sum(size_of(var.aval) for var in eqn.invars[1:])
    return None


def vector(counts: dict[Count, float]) -> Vector:
    vector = np.zeros(N_COUNTS)
    for count, amount in counts.items():
        vector[count] = amount
    return vector


def bodies_of(eqn: jex.JaxprEqn) -> list[jex.Jaxpr]:
    """Returns the jaxprs in an equation's parameters."""
    return [*jex.jaxprs_in_params(eqn.params)]


def _shape(aval: Any) -> Sequence[Any]:
    return getattr(aval, "shape", ()) or ()


def _elements(aval: Any) -> float:
    return _product(_shape(aval))


def _contraction_length(eqn: jex.JaxprEqn) -> float:
    """Returns the number of products summed for each element of a dot product."""
    (left, _), _ = eqn.params["dimension_numbers"]
    shape = _shape(eqn.invars[0].aval)
    return _product([shape[axis] for axis in left])


def _window(eqn: jex.JaxprEqn) -> float:
    """Returns the number of products summed for each element of a convolution."""
    numbers = eqn.params["dimension_numbers"]
    shape = _shape(eqn.invars[1].aval)
    return _product([shape[axis] for axis in numbers.rhs_spec[1:]])


def _product(sizes: Sequence[Any]) -> float:
    return float(math.prod(int(n) if is_known(n) else UNKNOWN_SIZE for n in sizes))


INPUTS = frozenset(
    {
        *("constant", "variable", "resource", "group", "placeholder", "read"),
        *("carry", "iteration"),
    }
)
"""What computes nothing; its results are in memory."""

VIEWS = frozenset({"reshape", "squeeze", "expand_dims", "stop_gradient", "final"})
"""What gives its argument in another form, which costs nothing."""

STORES = frozenset({"assign", "initialize"})

CALLS = frozenset(
    {
        *("jit", "pjit", "closed_call", "core_call", "call", "remat", "remat2", "checkpoint"),
        *("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "update"),
    }
)
"""What XLA replaces by its body."""

_FREE_WHERE_USED = frozenset({"broadcast_in_dim", "iota", "convert_element_type", "copy", "copy_p"})
"""What costs nothing where its result is used."""

_PARTIAL = frozenset({"gather", "dynamic_slice", "slice"})
"""What touches only as much of its operands as it gives."""

_CUBIC = frozenset(
    {
        *("cholesky", "lu", "qr", "householder_product", "eig", "eigh", "hessenberg", "schur"),
        *("ragged_dot_general", "svd", "triangular_solve", "tridiagonal", "tridiagonal_solve"),
    }
)

_ALONE = _CUBIC | {"dot_general", "conv_general_dilated", "sort", "dynamic_update_slice"}

_TRANSCENDENTAL = frozenset(
    {
        *("exp", "exp2", "expm1", "log", "log1p", "logistic", "tanh", "sinh", "cosh", "sin"),
        *("cos", "tan", "asin", "acos", "atan", "atan2", "asinh", "acosh", "atanh", "erf"),
        *("erfc", "erf_inv", "lgamma", "digamma", "pow", "cbrt"),
    }
)

_RANDOM = frozenset({"random_bits", "threefry2x32"})

_SERIES = frozenset(
    {
        *("igamma", "igammac", "igamma_grad_a", "polygamma", "random_gamma", "random_gamma_grad"),
        *("regularized_incomplete_beta", "zeta"),
    }
)
"""What is computed by a series or by rejection."""

_WEIGHTS = {
    **dict.fromkeys(_RANDOM, 70.0),
    **dict.fromkeys(_SERIES, 500.0),
    "fft": 80.0,
    "div": 2.5,
    "sqrt": 3.0,
    "rsqrt": 3.0,
    "rem": 10.0,
    "gather": 3.0,
    "rev": 4.0,
    "transpose": 12.0,
}
"""How many additions an element takes as long as; on CPUs, with jaxlib 0.10.2."""

_COMPARISON = 250.0
_CUMULATION = 8.0
_WINDOW_ELEMENT = 16.0
"""Likewise a comparison of a sort, a step of a cumulative sum, an element of a window."""

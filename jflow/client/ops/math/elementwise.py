"""The table of TensorFlow's elementwise functions: the name there, and JAX's function."""

# The names are those of TensorFlow, also where Python has them.
# ruff: noqa: A001, A002

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy import special

from jflow.client.ops.host_calls import stays_on_host
from jflow.client.ops.lift import operation
from jflow.client.ops.strings import compare_on_host


def _unary(fun: Callable[[Any], Any], op_name: str) -> Callable[..., Any]:
    call = operation(fun, op_name)

    def unary(x: Any, name: str | None = None) -> Any:
        return call(x, name=name)

    return _described(unary, fun, "(x)")


def _binary(fun: Callable[[Any, Any], Any], op_name: str) -> Callable[..., Any]:
    call = operation(fun, op_name)

    def binary(x: Any, y: Any, name: str | None = None) -> Any:
        return call(x, y, name=name)

    return _described(binary, fun, "(x, y)")


def _described(
    function: Callable[..., Any], fun: Callable[..., Any], arguments: str
) -> Callable[..., Any]:
    if fun.__doc__ and fun.__module__ == __name__:
        function.__doc__ = fun.__doc__
        return function
    origin = ".".join(part for part in fun.__module__.split(".") if not part.startswith("_"))
    namespace = next((x for x in ("numpy", "lax", "nn") if f".{x}" in fun.__module__), None)
    module = f"jax.{namespace}" if namespace else origin
    function.__doc__ = f"Returns `{module}.{fun.__name__}{arguments}` of tensors, elementwise."
    return function


def _comparison(fun: Callable[[Any, Any], Any], op_name: str) -> Callable[..., Any]:
    """Returns a comparison for numbers, and for what stays on the host, such as strings."""
    of_numbers = _binary(fun, op_name)

    def compare(x: Any, y: Any, name: str | None = None) -> Any:
        if stays_on_host(x, y):
            return compare_on_host(fun.__name__, x, y, name or op_name)
        return of_numbers(x, y, name=name)

    compare.__doc__ = f"{of_numbers.__doc__} Both can be of strings."
    return compare


def _div(x: Any, y: Any) -> Any:
    """Divides tensors, integers with rounding down, as Python 2 does."""
    quotient = jnp.divide if _is_inexact(x, y) else jnp.floor_divide
    return quotient(x, y)


def _div_no_nan(x: Any, y: Any) -> Any:
    """Divides tensors; where `y` is zero, the quotient is zero, and so are its derivatives."""
    is_zero = jnp.equal(y, 0)
    return jnp.where(is_zero, 0, jnp.divide(x, jnp.where(is_zero, 1, y)))


@jax.custom_jvp
def _absolute(x: Any) -> Any:
    return jnp.abs(x)


@_absolute.defjvp
def _derivative_of_absolute(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    return _absolute(x), jnp.sign(x) * dx


def _magnitude(x: Any) -> Any:
    """Returns absolute values; their derivative at zero is zero."""
    is_real = jnp.issubdtype(jnp.result_type(x), jnp.floating)
    return _absolute(x) if is_real else jnp.abs(x)


@jax.custom_jvp
def _maximum(x: Any, y: Any) -> Any:
    return jnp.maximum(x, y)


@_maximum.defjvp
def _derivative_of_maximum(primals: Any, tangents: Any) -> Any:
    x, y = primals
    return _maximum(x, y), jnp.where(x >= y, *tangents)


@jax.custom_jvp
def _minimum(x: Any, y: Any) -> Any:
    return jnp.minimum(x, y)


@_minimum.defjvp
def _derivative_of_minimum(primals: Any, tangents: Any) -> Any:
    x, y = primals
    return _minimum(x, y), jnp.where(x <= y, *tangents)


def larger(x: Any, y: Any) -> Any:
    """Returns the larger elements; the derivative with respect to equal ones is that of `x`."""
    return _maximum(*_promoted(x, y))


def smaller(x: Any, y: Any) -> Any:
    """Returns the smaller elements; the derivative with respect to equal ones is that of `x`."""
    return _minimum(*_promoted(x, y))


def _clipped(x: Any, least: Any, most: Any) -> Any:
    return larger(smaller(x, most), least)


def _squared_difference(x: Any, y: Any) -> Any:
    """Returns `(x - y) * conj(x - y)`, elementwise."""
    difference = jnp.subtract(x, y)
    return jnp.conj(difference) * difference


def _truncatediv(x: Any, y: Any) -> Any:
    """Divides integers, rounding towards zero."""
    dtype = jnp.result_type(x, y)
    return jax.lax.div(*(jnp.asarray(z, dtype) for z in jnp.broadcast_arrays(x, y)))


def _truncatemod(x: Any, y: Any) -> Any:
    """Returns the remainder of a division that rounds towards zero."""
    return jnp.fmod(x, y)


def _polygamma(n: Any, x: Any) -> Any:
    return special.polygamma(jnp.asarray(n).astype(jnp.int32), x)


def _promoted(*values: Any) -> list[Any]:
    dtype = jnp.result_type(*values)
    return [jnp.asarray(value, dtype) for value in values]


def _is_inexact(*values: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(*values), jnp.inexact)


abs = _unary(_magnitude, "Abs")
acos = _unary(jnp.arccos, "Acos")
acosh = _unary(jnp.arccosh, "Acosh")
asin = _unary(jnp.arcsin, "Asin")
asinh = _unary(jnp.arcsinh, "Asinh")
atan = _unary(jnp.arctan, "Atan")
atanh = _unary(jnp.arctanh, "Atanh")
ceil = _unary(jnp.ceil, "Ceil")
conj = _unary(jnp.conj, "Conj")
cos = _unary(jnp.cos, "Cos")
cosh = _unary(jnp.cosh, "Cosh")
digamma = _unary(special.digamma, "Digamma")
erf = _unary(special.erf, "Erf")
erfc = _unary(special.erfc, "Erfc")
exp = _unary(jnp.exp, "Exp")
expm1 = _unary(jnp.expm1, "Expm1")
floor = _unary(jnp.floor, "Floor")
is_finite = _unary(jnp.isfinite, "IsFinite")
is_inf = _unary(jnp.isinf, "IsInf")
is_nan = _unary(jnp.isnan, "IsNan")
lgamma = _unary(special.gammaln, "Lgamma")
log = _unary(jnp.log, "Log")
log1p = _unary(jnp.log1p, "Log1p")
log_sigmoid = _unary(jax.nn.log_sigmoid, "LogSigmoid")
logical_not = _unary(jnp.logical_not, "LogicalNot")
negative = _unary(jnp.negative, "Neg")
reciprocal = _unary(jnp.reciprocal, "Reciprocal")
rint = _unary(jnp.rint, "Rint")
round = _unary(jnp.round, "Round")
rsqrt = _unary(jax.lax.rsqrt, "Rsqrt")
sigmoid = _unary(jax.nn.sigmoid, "Sigmoid")
sign = _unary(jnp.sign, "Sign")
sin = _unary(jnp.sin, "Sin")
sinh = _unary(jnp.sinh, "Sinh")
sqrt = _unary(jnp.sqrt, "Sqrt")
square = _unary(jnp.square, "Square")
tan = _unary(jnp.tan, "Tan")
tanh = _unary(jnp.tanh, "Tanh")

add = _binary(jnp.add, "Add")
div = _binary(_div, "div")
div_no_nan = _binary(_div_no_nan, "div_no_nan")
divide = _binary(jnp.true_divide, "truediv")
equal = _comparison(jnp.equal, "Equal")
floor_div = _binary(jnp.floor_divide, "FloorDiv")
floordiv = _binary(jnp.floor_divide, "floordiv")
floormod = _binary(jnp.mod, "FloorMod")
greater = _binary(jnp.greater, "Greater")
greater_equal = _binary(jnp.greater_equal, "GreaterEqual")
less = _binary(jnp.less, "Less")
less_equal = _binary(jnp.less_equal, "LessEqual")
logical_and = _binary(jnp.logical_and, "LogicalAnd")
logical_or = _binary(jnp.logical_or, "LogicalOr")
logical_xor = _binary(jnp.logical_xor, "LogicalXor")
maximum = _binary(larger, "Maximum")
minimum = _binary(smaller, "Minimum")
mod = _binary(jnp.mod, "FloorMod")
multiply = _binary(jnp.multiply, "Mul")
not_equal = _comparison(jnp.not_equal, "NotEqual")
pow = _binary(jnp.power, "Pow")
realdiv = _binary(jnp.true_divide, "RealDiv")
squared_difference = _binary(_squared_difference, "SquaredDifference")
subtract = _binary(jnp.subtract, "Sub")
truediv = _binary(jnp.true_divide, "truediv")
truncatediv = _binary(_truncatediv, "TruncateDiv")
truncatemod = _binary(_truncatemod, "TruncateMod")

_angle = operation(jnp.angle, "Angle")
_atan2 = operation(jnp.arctan2, "Atan2")
_clip = operation(_clipped, "clip_by_value")
_complex = operation(jax.lax.complex, "Complex")
_igamma = operation(special.gammainc, "Igamma")
_igammac = operation(special.gammaincc, "Igammac")
_imag = operation(jnp.imag, "Imag")
_polygammas = operation(_polygamma, "Polygamma")
_real = operation(jnp.real, "Real")
_stop_gradient = operation(jax.lax.stop_gradient, "StopGradient")
_zeta = operation(special.zeta, "Zeta")


def angle(input: Any, name: str | None = None) -> Any:
    """Returns the angles of complex numbers in radians."""
    return _angle(input, name=name)


def imag(input: Any, name: str | None = None) -> Any:
    """Returns the imaginary parts of numbers."""
    return _imag(input, name=name)


def real(input: Any, name: str | None = None) -> Any:
    """Returns the real parts of numbers."""
    return _real(input, name=name)


def stop_gradient(input: Any, name: str | None = None) -> Any:
    """Returns a tensor to which no gradient is taken."""
    return _stop_gradient(input, name=name)


def atan2(y: Any, x: Any, name: str | None = None) -> Any:
    """Returns the angles of the points (x, y) in radians, elementwise."""
    return _atan2(y, x, name=name)


def complex(real: Any, imag: Any, name: str | None = None) -> Any:
    """Returns complex numbers of real and imaginary parts."""
    return _complex(real, imag, name=name)


def igamma(a: Any, x: Any, name: str | None = None) -> Any:
    """Returns the lower regularized incomplete gamma function, elementwise."""
    return _igamma(a, x, name=name)


def igammac(a: Any, x: Any, name: str | None = None) -> Any:
    """Returns the upper regularized incomplete gamma function, elementwise."""
    return _igammac(a, x, name=name)


def polygamma(a: Any, x: Any, name: str | None = None) -> Any:
    """Returns derivatives of order a of `digamma` at x; the orders may be floats."""
    return _polygammas(a, x, name=name)


def scalar_mul(scalar: Any, x: Any, name: str | None = None) -> Any:
    """Returns a tensor multiplied by a scalar."""
    return multiply(scalar, x, name=name)


def zeta(x: Any, q: Any, name: str | None = None) -> Any:
    """Returns the Hurwitz zeta function, elementwise."""
    return _zeta(x, q, name=name)


def clip_by_value(t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None) -> Any:
    """Returns a tensor whose elements are moved to the nearest values between two bounds.

    Where the bounds are in the wrong order it is the lower one.
    """
    return _clip(t, clip_value_min, clip_value_max, name=name)

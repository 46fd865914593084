"""The table of TensorFlow's elementwise functions: the name there, and JAX's function."""

# The names are those of TensorFlow, also where Python has them.
# ruff: noqa: A001

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy import special

from jflow.client.ops.lift import operation


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


def _div(x: Any, y: Any) -> Any:
    """Divides tensors, integers with rounding down, as Python 2 does."""
    quotient = jnp.divide if _is_inexact(x, y) else jnp.floor_divide
    return quotient(x, y)


def _div_no_nan(x: Any, y: Any) -> Any:
    """Divides tensors; where `y` is zero, the quotient is zero, and so are its derivatives."""
    is_zero = jnp.equal(y, 0)
    return jnp.where(is_zero, 0, jnp.divide(x, jnp.where(is_zero, 1, y)))


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
    """Returns derivatives of order n of `digamma` at x; the orders may be floats."""
    return special.polygamma(jnp.asarray(n).astype(jnp.int32), x)


def _is_inexact(*values: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(*values), jnp.inexact)


abs = _unary(jnp.abs, "Abs")
acos = _unary(jnp.arccos, "Acos")
acosh = _unary(jnp.arccosh, "Acosh")
angle = _unary(jnp.angle, "Angle")
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
imag = _unary(jnp.imag, "Imag")
is_finite = _unary(jnp.isfinite, "IsFinite")
is_inf = _unary(jnp.isinf, "IsInf")
is_nan = _unary(jnp.isnan, "IsNan")
lgamma = _unary(special.gammaln, "Lgamma")
log = _unary(jnp.log, "Log")
log1p = _unary(jnp.log1p, "Log1p")
log_sigmoid = _unary(jax.nn.log_sigmoid, "LogSigmoid")
logical_not = _unary(jnp.logical_not, "LogicalNot")
negative = _unary(jnp.negative, "Neg")
real = _unary(jnp.real, "Real")
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
stop_gradient = _unary(jax.lax.stop_gradient, "StopGradient")
tan = _unary(jnp.tan, "Tan")
tanh = _unary(jnp.tanh, "Tanh")

add = _binary(jnp.add, "Add")
atan2 = _binary(jnp.arctan2, "Atan2")
complex = _binary(jax.lax.complex, "Complex")
div = _binary(_div, "div")
div_no_nan = _binary(_div_no_nan, "div_no_nan")
divide = _binary(jnp.true_divide, "truediv")
equal = _binary(jnp.equal, "Equal")
floor_div = _binary(jnp.floor_divide, "FloorDiv")
floordiv = _binary(jnp.floor_divide, "floordiv")
floormod = _binary(jnp.mod, "FloorMod")
greater = _binary(jnp.greater, "Greater")
greater_equal = _binary(jnp.greater_equal, "GreaterEqual")
igamma = _binary(special.gammainc, "Igamma")
igammac = _binary(special.gammaincc, "Igammac")
less = _binary(jnp.less, "Less")
less_equal = _binary(jnp.less_equal, "LessEqual")
logical_and = _binary(jnp.logical_and, "LogicalAnd")
logical_or = _binary(jnp.logical_or, "LogicalOr")
logical_xor = _binary(jnp.logical_xor, "LogicalXor")
maximum = _binary(jnp.maximum, "Maximum")
minimum = _binary(jnp.minimum, "Minimum")
mod = _binary(jnp.mod, "FloorMod")
multiply = _binary(jnp.multiply, "Mul")
not_equal = _binary(jnp.not_equal, "NotEqual")
polygamma = _binary(_polygamma, "Polygamma")
pow = _binary(jnp.power, "Pow")
realdiv = _binary(jnp.true_divide, "RealDiv")
scalar_mul = _binary(jnp.multiply, "Mul")
squared_difference = _binary(_squared_difference, "SquaredDifference")
subtract = _binary(jnp.subtract, "Sub")
truediv = _binary(jnp.true_divide, "truediv")
truncatediv = _binary(_truncatediv, "TruncateDiv")
truncatemod = _binary(_truncatemod, "TruncateMod")
zeta = _binary(special.zeta, "Zeta")

_clip = operation(jnp.clip, "clip_by_value")


def clip_by_value(t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None) -> Any:
    """Returns a tensor whose elements are moved to the nearest values between two bounds."""
    return _clip(t, clip_value_min, clip_value_max, name=name)

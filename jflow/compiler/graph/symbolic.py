"""Base of tensors and variables: operators that add operations instead of computing."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from jflow.base.values import Conversions, Dtype, as_operand, is_known
from jflow.base.values.host import string
from jflow.plan.xla import internals

_FETCH = "or fetch it with session.run first"
_INSTEAD = {
    "NumPy": f"so NumPy cannot use it; use the same name in jflow.numpy, {_FETCH}",
    "bool": f"so Python cannot branch on it; use jflow.numpy.where or jflow.lax.cond, {_FETCH}",
    "float": (
        "so Python cannot convert it to a number; use jflow.cast in place of float() and int(), "
        f"and jflow.numpy in place of math and round(), {_FETCH}"
    ),
    "format": f"so it cannot be formatted; {_FETCH.removeprefix('or ')}, and format the result",
    "in": f"so Python cannot search it; use jflow.numpy.isin or jflow.numpy.any, {_FETCH}",
    "index": (
        "so Python cannot use it as an index or a size; use jflow.numpy.take to index by it, or "
        f"jflow.lax.fori_loop to count up to it, {_FETCH}"
    ),
    "iter": f"so Python cannot iterate; index it instead, or use jflow.numpy.unstack, {_FETCH}",
}
"""What Python and NumPy would do with a value, and what does the same in a graph."""
_OF_ARRAYS = {
    "T": "jflow.numpy.transpose",
    "astype": "jflow.cast",
    **dict.fromkeys(("item", "numpy", "tolist"), "session.run, or value() of an eager variable"),
    "view": "jflow.lax.bitcast_convert_type",
}
"""What does the same as attributes of arrays that have no function of their name in jflow.numpy."""
_OPERANDS = int | float | complex | np.ndarray | np.generic | jax.Array
_NOT_OPERANDS = (str, bytes, dict, set, frozenset, type(None))


def _is_operand(value: Any) -> bool:
    return isinstance(value, _OPERANDS | Symbolic) or hasattr(value, "__jax_array__")


class Symbolic(Conversions, ABC):
    """Base class of values that exist only while a step runs."""

    __slots__ = ()

    # An array leaves `array + tensor` to the tensor, instead of adding to each of its elements.
    __array_priority__ = 100

    @abstractmethod
    def to_tensor(self) -> Any:
        """Returns the value as a tensor; a variable is read after the current control inputs."""

    def graph_element(self) -> Any:
        """Returns the tensor that represents this value in fetches, feeds and exported graphs."""
        return self.to_tensor()

    @property
    @abstractmethod
    def dtype(self) -> Dtype:
        """Type of the elements."""

    @property
    @abstractmethod
    def shape(self) -> Any:
        """The sizes of the dimensions, a `TensorShape`."""

    def get_shape(self) -> Any:
        """Returns `shape`."""
        return self.shape

    @abstractmethod
    def _apply(self, fun: Callable[..., Any], *args: Any) -> Any:
        """Adds a call of `fun` to this value's graph."""

    def _binary(self, fun: Callable[..., Any], left: Any, right: Any) -> Any:
        """Applies a binary operator; the other operand may also be a list or tuple."""
        other = right if left is self else left
        if isinstance(left, list | tuple):
            left = self._packed(left)
        elif isinstance(right, list | tuple):
            right = self._packed(right)
        elif not _is_operand(other):
            return self._without_number(fun, other)
        return self._apply(fun, left, right)

    def _packed(self, values: Sequence[Any]) -> Any:
        """Converts a list operand to an array; Python numbers are weakly typed."""
        leaves = jax.tree.leaves(values)
        if any(isinstance(leaf, Symbolic | jax.core.Tracer) for leaf in leaves):
            return self._apply(jnp.asarray, values)
        return as_operand(values, leaves, self.dtype)

    def __add__(self, other: Any) -> Any:
        return self._binary(operator.add, self, other)

    def __radd__(self, other: Any) -> Any:
        return self._binary(operator.add, other, self)

    def __sub__(self, other: Any) -> Any:
        return self._binary(operator.sub, self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._binary(operator.sub, other, self)

    def __mul__(self, other: Any) -> Any:
        return self._binary(operator.mul, self, other)

    def __rmul__(self, other: Any) -> Any:
        return self._binary(operator.mul, other, self)

    def __truediv__(self, other: Any) -> Any:
        return self._binary(operator.truediv, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._binary(operator.truediv, other, self)

    def __floordiv__(self, other: Any) -> Any:
        return self._binary(operator.floordiv, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._binary(operator.floordiv, other, self)

    def __mod__(self, other: Any) -> Any:
        return self._binary(operator.mod, self, other)

    def __rmod__(self, other: Any) -> Any:
        return self._binary(operator.mod, other, self)

    def __pow__(self, other: Any) -> Any:
        return self._binary(operator.pow, self, other)

    def __rpow__(self, other: Any) -> Any:
        return self._binary(operator.pow, other, self)

    def __matmul__(self, other: Any) -> Any:
        return self._binary(operator.matmul, self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return self._binary(operator.matmul, other, self)

    def __and__(self, other: Any) -> Any:
        return self._binary(operator.and_, self, other)

    def __rand__(self, other: Any) -> Any:
        return self._binary(operator.and_, other, self)

    def __or__(self, other: Any) -> Any:
        return self._binary(operator.or_, self, other)

    def __ror__(self, other: Any) -> Any:
        return self._binary(operator.or_, other, self)

    def __xor__(self, other: Any) -> Any:
        return self._binary(operator.xor, self, other)

    def __rxor__(self, other: Any) -> Any:
        return self._binary(operator.xor, other, self)

    def __lshift__(self, other: Any) -> Any:
        return self._binary(operator.lshift, self, other)

    def __rlshift__(self, other: Any) -> Any:
        return self._binary(operator.lshift, other, self)

    def __rshift__(self, other: Any) -> Any:
        return self._binary(operator.rshift, self, other)

    def __rrshift__(self, other: Any) -> Any:
        return self._binary(operator.rshift, other, self)

    def __divmod__(self, other: Any) -> Any:
        return self._binary(divmod, self, other)

    def __rdivmod__(self, other: Any) -> Any:
        return self._binary(divmod, other, self)

    def __lt__(self, other: Any) -> Any:
        return self._binary(operator.lt, self, other)

    def __le__(self, other: Any) -> Any:
        return self._binary(operator.le, self, other)

    def __gt__(self, other: Any) -> Any:
        return self._binary(operator.gt, self, other)

    def __ge__(self, other: Any) -> Any:
        return self._binary(operator.ge, self, other)

    def __neg__(self) -> Any:
        return self._apply(operator.neg, self)

    def __pos__(self) -> Any:
        return self._apply(operator.pos, self)

    def __abs__(self) -> Any:
        return self._apply(operator.abs, self)

    def __invert__(self) -> Any:
        return self._apply(operator.invert, self)

    def __getitem__(self, index: Any) -> Any:
        return self._apply(operator.getitem, self, index)

    def _without_number(self, fun: Callable[..., Any], other: Any) -> Any:
        """Rejects an operand that is not a number, unless its own operator may handle it.

        Returns NotImplemented if the other operand may have the operator; else raises TypeError.
        """
        if isinstance(other, Conversions):
            other._value_for("operand")
        if not isinstance(other, _NOT_OPERANDS):
            return NotImplemented
        advice = ""
        if isinstance(other, str | bytes):
            is_text = self.dtype == string
            mine = "the tensor" if is_text else "jflow.as_string(the tensor)"
            advice = f"; to join text in a step, use jflow.string_join([{mine}, ...])"
        raise TypeError(
            f"{fun.__name__} of {self!r} expected a number, an array, a tensor or a list of these "
            f"as the other operand, got {other!r:.80} of type {type(other).__name__}{advice}"
        )

    if not TYPE_CHECKING:  # a type checker is to refuse names that there are not

        def __getattr__(self, name: str) -> Any:
            is_public = name[:1] != "_"
            if is_public and hasattr(type(self), name):
                return object.__getattribute__(self, name)  # raises its own AttributeError
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in _OF_ARRAYS or (is_public and hasattr(jnp, name)):
                message += f"; use {_OF_ARRAYS.get(name, f'jflow.numpy.{name}')}"
            raise AttributeError(message, name=name, obj=self)

    @property
    def __jax_array__(self) -> Any:
        self._refuse_jax(internals.asker())

    def _refuse_jax(self, asker: internals.Asker) -> NoReturn:
        """Raises the error for a JAX function that needs a concrete value."""
        if asker is internals.Asker.OPERATOR:
            raise AttributeError("__jax_array__")  # JAX then defers to the operator of this class
        # A ValueError, because JAX replaces a TypeError by a less specific one.
        raise ValueError(
            f"{self!r} has no value while the graph is built, so JAX's own functions cannot use "
            "it; use the same name in jflow.numpy, jflow.nn, jflow.lax or jflow.random, or for a "
            "function of another library tensor.graph.apply(function, (tensor,))"
        )

    def _value_for(self, use: str) -> Any:
        raise TypeError(f"{self!r} has no value while the graph is built, {_INSTEAD[use]}")

    def __bool__(self) -> bool:
        return bool(self._value_for("bool"))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._value_for("iter"))

    def __contains__(self, item: Any) -> bool:
        return item in self._value_for("in")

    def __len__(self) -> int:
        if not self.shape:
            kind = "has an unknown rank" if self.shape.rank is None else "is a scalar"
            raise TypeError(f"len() of {self!r}, which {kind}")
        if not is_known(self.shape[0]):
            raise TypeError(
                f"len() of {self!r}, whose first size is known in a step only; use its shape[0], "
                "which operations can compute with"
            )
        n: int = self.shape[0]
        return n


internals.convert_by_jax_array(Symbolic)

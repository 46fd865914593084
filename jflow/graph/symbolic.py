"""What tensors and variables share: arithmetic that builds graph instead of computing."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import jax
import jax.numpy as jnp

from jflow.values import Dtype, TensorShape, as_operand


class Symbolic(ABC):
    """Stands for an array that exists only while a step runs."""

    __slots__ = ()

    # NumPy must hand `array + tensor` to us instead of looping over its own elements.
    __array_ufunc__ = None

    @abstractmethod
    def to_tensor(self) -> Any:
        """The value where it is used: a variable is read after the control dependencies there."""

    def graph_element(self) -> Any:
        """The tensor that is meant by its name: what is fetched, fed and written to files."""
        return self.to_tensor()

    @property
    @abstractmethod
    def dtype(self) -> Dtype:
        """Type of the elements."""

    @property
    @abstractmethod
    def shape(self) -> TensorShape:
        """The sizes of the dimensions."""

    def get_shape(self) -> TensorShape:
        """Returns `shape`."""
        return self.shape

    @abstractmethod
    def _apply(self, fun: Callable[..., Any], *args: Any) -> Any:
        """Adds `fun` of the arguments to this value's graph."""

    def _binary(self, fun: Callable[..., Any], left: Any, right: Any) -> Any:
        """An operator of this value and another one, which may also be a list or tuple."""
        if isinstance(left, list | tuple):
            left = self._packed(left)
        elif isinstance(right, list | tuple):
            right = self._packed(right)
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

    def __bool__(self) -> bool:
        raise TypeError(
            f"{self!r} has no value while the graph is built, so Python cannot branch on it; "
            "use jflow.numpy.where or jflow.lax.cond, or fetch it with session.run first"
        )

    def __iter__(self) -> NoReturn:
        raise TypeError(f"{self!r} has no value while the graph is built; index it instead")

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            f"{self!r} has no value while the graph is built, so NumPy cannot use it; "
            "use the same name in jflow.numpy, or fetch it with session.run first"
        )

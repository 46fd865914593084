"""`Conversions`: conversions of an object to a number, an array or text."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


class Conversions:
    """Base of objects that stand for an array, with a value now or only once a step has run.

    Each conversion asks for the value in one place, where an object that has none says what to
    write instead.
    """

    __slots__ = ()

    def _value_for(self, use: str) -> Any:
        """Returns the value, an array.

        Args:
          use: what it is for: "NumPy", "bool", "float", "format", "in", "index" or "iter".

        Raises:
          TypeError: if there is none, with what to write instead.
        """
        raise NotImplementedError

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self._value_for("NumPy"), dtype, copy=copy)

    def __float__(self) -> float:
        return float(self._value_for("float"))

    def __int__(self) -> int:
        return int(self._value_for("float"))

    def __complex__(self) -> complex:
        return complex(self._value_for("float"))

    def __round__(self, n_digits: int | None = None) -> Any:
        return round(self._value_for("float"), n_digits)

    def __index__(self) -> int:
        index: int = self._value_for("index").__index__()
        return index

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        value = self._value_for("format")
        if isinstance(value, jax.core.Tracer):
            raise TypeError(
                f"{self!r} has no value while JAX traces a function, so it cannot be formatted; "
                "use jax.debug.print in the function, or format what it returns"
            )
        if value.ndim:
            raise TypeError(
                f"{spec!r} formats a number, and {self!r} is an array; format its elements, or use "
                "np.array2string(np.asarray(array), precision=2)"
            )
        return format(value[()], spec)

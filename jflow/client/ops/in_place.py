"""In-place operators of variables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class InPlaceOperators(ABC):
    """What `variable += value` and its like do.

    Python binds the name on the left to the result. In graph code that is a tensor, as in
    TensorFlow 1.15. An eager variable would seem to be updated and is not, so it is refused there.
    """

    @property
    @abstractmethod
    def is_eager(self) -> bool:
        """Whether it has a value outside of sessions."""

    def __iadd__(self, other: Any) -> Any:
        return self._refuse_eager("+=", "assign_add(value)")

    def __isub__(self, other: Any) -> Any:
        return self._refuse_eager("-=", "assign_sub(value)")

    def __imul__(self, other: Any) -> Any:
        return self._refuse_eager("*=")

    def __itruediv__(self, other: Any) -> Any:
        return self._refuse_eager("/=")

    def __ifloordiv__(self, other: Any) -> Any:
        return self._refuse_eager("//=")

    def __imod__(self, other: Any) -> Any:
        return self._refuse_eager("%=")

    def __ipow__(self, other: Any) -> Any:
        return self._refuse_eager("**=")

    def __imatmul__(self, other: Any) -> Any:
        return self._refuse_eager("@=")

    def __iand__(self, other: Any) -> Any:
        return self._refuse_eager("&=")

    def __ior__(self, other: Any) -> Any:
        return self._refuse_eager("|=")

    def __ixor__(self, other: Any) -> Any:
        return self._refuse_eager("^=")

    def __ilshift__(self, other: Any) -> Any:
        return self._refuse_eager("<<=")

    def __irshift__(self, other: Any) -> Any:
        return self._refuse_eager(">>=")

    def _refuse_eager(self, operator: str, method: str = "") -> Any:
        """Raises RuntimeError if it is eager; otherwise Python goes on with the plain operator."""
        if not self.is_eager:
            return NotImplemented
        plain = operator.removesuffix("=")
        raise RuntimeError(
            f"`v {operator} value` does not change {self!r}: it binds the name `v` to a new array; "
            f"write `v.{method or f'assign(v {plain} value)'}` to change the variable, or "
            f"`x = v {plain} value` for the array"
        )

"""In-place updates of variables: operators such as `+=`, and scatter updates of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class InPlaceOperators(ABC):
    """Refuses operators such as `variable += value` for eager variables.

    Python binds the name on the left to the result. In graph code that is a tensor, as in
    TensorFlow 1.15. An eager variable would only seem to be updated, so the operators raise an
    error.
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
        """Raises RuntimeError if the variable is eager; else Python uses the plain operator."""
        if not self.is_eager:
            return NotImplemented
        plain = operator.removesuffix("=")
        raise RuntimeError(
            f"`v {operator} value` does not change {self!r}: it binds the name `v` to a new array; "
            f"write `v.{method or f'assign(v {plain} value)'}` to change the variable, or "
            f"`x = v {plain} value` for the array"
        )


class RowUpdates(ABC):
    """Scatter updates of rows, of a variable or of several that together are one value."""

    @abstractmethod
    def _update_rows(self, method: str, indices: Any, updates: Any, name: str) -> Any:
        """Updates rows by a method of `array.at[indices]`; returns what the updates return."""

    def scatter_update(
        self,
        indices: Any,
        updates: Any = None,
        use_locking: bool | None = None,
        name: str = "ScatterUpdate",
    ) -> Any:
        """Assigns to rows: `v[indices] = updates`; see `jflow.scatter_update`.

        This method and the next ones also take, in place of indices and updates, one object that
        has them as its attributes `indices` and `values`, such as a sparse gradient.
        """
        check_flag("use_locking", use_locking)
        return self._update_rows("set", indices, updates, name)

    def scatter_add(
        self,
        indices: Any,
        updates: Any = None,
        use_locking: bool | None = None,
        name: str = "ScatterAdd",
    ) -> Any:
        """Adds to rows: `v[indices] += updates`; see `jflow.scatter_add`."""
        check_flag("use_locking", use_locking)
        return self._update_rows("add", indices, updates, name)

    def scatter_sub(
        self,
        indices: Any,
        updates: Any = None,
        use_locking: bool | None = None,
        name: str = "ScatterSub",
    ) -> Any:
        """Subtracts from rows: `v[indices] -= updates`; see `jflow.scatter_sub`."""
        check_flag("use_locking", use_locking)
        return self._update_rows("subtract", indices, updates, name)

    def scatter_mul(
        self,
        indices: Any,
        updates: Any = None,
        use_locking: bool | None = None,
        name: str = "ScatterMul",
    ) -> Any:
        """Multiplies rows: `v[indices] *= updates`; see `jflow.scatter_mul`."""
        check_flag("use_locking", use_locking)
        return self._update_rows("multiply", indices, updates, name)

    def scatter_div(
        self,
        indices: Any,
        updates: Any = None,
        use_locking: bool | None = None,
        name: str = "ScatterDiv",
    ) -> Any:
        """Divides rows: `v[indices] /= updates`; see `jflow.scatter_div`."""
        check_flag("use_locking", use_locking)
        return self._update_rows("divide", indices, updates, name)

    def scatter_min(
        self,
        indices: Any,
        updates: Any = None,
        use_locking: bool | None = None,
        name: str = "ScatterMin",
    ) -> Any:
        """Sets rows to the minimum of them and the updates; see `jflow.scatter_min`."""
        check_flag("use_locking", use_locking)
        return self._update_rows("min", indices, updates, name)

    def scatter_max(
        self,
        indices: Any,
        updates: Any = None,
        use_locking: bool | None = None,
        name: str = "ScatterMax",
    ) -> Any:
        """Sets rows to the maximum of them and the updates; see `jflow.scatter_max`."""
        check_flag("use_locking", use_locking)
        return self._update_rows("max", indices, updates, name)


def check_flag(name: str, value: Any) -> None:
    """Raises TypeError unless an argument is True, False or None, TensorFlow's default.

    `use_locking` says whether an update is atomic; all are, so it is without effect.
    """
    if not isinstance(value, bool | None):
        raise TypeError(f"{name} must be True, False or None, got {value!r:.80}")

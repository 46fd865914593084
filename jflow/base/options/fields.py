"""`Options`: dataclasses whose fields are checked when they are assigned."""

from __future__ import annotations

import math
import operator
from dataclasses import fields
from functools import cache
from typing import Any, Self, get_type_hints

import numpy as np

from jflow.errors import InvalidArgumentError

_NUMBERS = int | float | np.integer | np.floating


class Options:
    """Base of the dataclasses of options, in which each field has a default.

    A value is checked when it is assigned. What takes options copies them, so that a later
    assignment changes nothing that has been made with them.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        hints = self._hints
        if name not in hints:
            raise AttributeError(
                f"{type(self).__name__} has no option {name!r}; it has {', '.join(hints)}"
            )
        where = f"{type(self).__name__}.{name}"
        object.__setattr__(self, name, self.checked(name, _convert(value, hints[name], where)))

    def checked(self, name: str, value: Any) -> Any:
        """Returns a valid value of an option, converted if necessary.

        Raises:
          TypeError: if what is in it has the wrong type.
          InvalidArgumentError: if it is not allowed.
        """
        return value

    def copy(self) -> Self:
        """Returns a copy, nested options and lists included, which is checked again."""
        own_values = {name: getattr(self, name) for name in self._hints}
        nested = {name: one.copy() for name, one in own_values.items() if isinstance(one, Options)}
        return type(self)(**own_values | nested)

    def CopyFrom(self, other: Self) -> None:  # noqa: N802 - the name is that of protocol buffers
        """Sets all options to those of another object of the same class.

        Raises:
          TypeError: if it is of another class.
        """
        if type(other) is not type(self):
            raise TypeError(f"expected a {type(self).__name__}, got {type(other).__name__}")
        for name, value in vars(other.copy()).items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        defaults = type(self)()
        own_values = {name: getattr(self, name) for name in self._hints}
        shown = (
            f"{name}={one!r}" for name, one in own_values.items() if one != getattr(defaults, name)
        )
        return f"{type(self).__name__}({', '.join(shown)})"

    @property
    def _hints(self) -> dict[str, Any]:
        """The types of the options, by name."""
        kind: Any = type(self)
        return _hints_of(kind)


@cache
def _hints_of(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _convert(value: Any, hint: Any, where: str) -> Any:
    """Converts a value to the type of its option; other types than these are not checked."""
    if hint is bool:
        if isinstance(value, bool | np.bool_) or (isinstance(value, int) and value in (0, 1)):
            return bool(value)
        raise TypeError(f"{where} must be True or False, got {value!r}")
    if hint is int:
        if isinstance(value, float) and value.is_integer():
            return int(value)  # such as a number of seconds times 1000
        try:
            return operator.index(value)
        except TypeError:
            raise TypeError(f"{where} must be an int, got {value!r}") from None
    if hint is float:
        if isinstance(value, bool) or not isinstance(value, _NUMBERS):
            raise TypeError(f"{where} must be a number, got {value!r}")
        if not math.isfinite(value):
            raise InvalidArgumentError(f"{where} must be finite, got {value!r}")
        return float(value)
    is_class = hint is str or (isinstance(hint, type) and issubclass(hint, Options))
    if is_class and not isinstance(value, hint):
        raise TypeError(f"{where} must be a {hint.__name__}, got {value!r:.80}")
    return value

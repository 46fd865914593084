"""Validation of records that came over the wire."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NoReturn, TypeGuard

from jflow.errors import InvalidArgumentError


class Attributes:
    """Typed access to a record; malformed attributes raise an InvalidArgumentError.

    Args:
      record: what came; must be a dict with just these keys.
      what: what it describes, for messages.
      keys: the keys that it must have.
    """

    def __init__(self, record: object, what: str, keys: Collection[str]) -> None:
        self._what = what
        if not isinstance(record, dict) or record.keys() != set(keys):
            self._refuse(f"a record of {', '.join(keys)}", record)
        self._record: dict[str, Any] = record

    def text(self, key: str) -> str:
        """An attribute that is text."""
        value = self._record[key]
        return value if isinstance(value, str) else self._refuse(f"text as {key}", value)

    def flag(self, key: str) -> bool:
        """An attribute that is true or false."""
        value = self._record[key]
        return value if isinstance(value, bool) else self._refuse(f"true or false as {key}", value)

    def integer(self, key: str) -> int:
        """An attribute that is an integer."""
        value = self._record[key]
        return value if _is_integer(value) else self._refuse(f"an integer as {key}", value)

    def optional_integer(self, key: str) -> int | None:
        """An attribute that is an integer or None."""
        return None if self._record[key] is None else self.integer(key)

    def items(self, key: str) -> list[Any]:
        """An attribute that is a list."""
        value = self._record[key]
        return value if isinstance(value, list) else self._refuse(f"a list as {key}", value)

    def mapping(self, key: str) -> dict[str, Any]:
        """An attribute that is a record of its own."""
        value = self._record[key]
        return value if isinstance(value, dict) else self._refuse(f"a record as {key}", value)

    def texts(self, key: str) -> tuple[str, ...]:
        """An attribute that is a list of text."""
        values = self.items(key)
        if not all(isinstance(value, str) for value in values):
            self._refuse(f"a list of text as {key}", values)
        return tuple(values)

    def shape(self, key: str) -> tuple[int | None, ...] | None:
        """An attribute that is a shape: a list of sizes, some of them None, or None for any."""
        if self._record[key] is None:
            return None
        values = self.items(key)
        if not all(value is None or (_is_integer(value) and value >= 0) for value in values):
            self._refuse(f"a shape as {key}", values)
        return tuple(values)

    def _refuse(self, expected: str, got: object) -> NoReturn:
        raise InvalidArgumentError(f"malformed {self._what}: expected {expected}, got {got!r:.80}")


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)

"""What reads the records of one work item, usually a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from jflow.errors import InvalidArgumentError, OpError

MAX_RECORD_BYTES = 1 << 30
"""What a record may have at most unless the options say otherwise."""


class Records(ABC):
    """The records of a work item, one after the other.

    Where a record cannot be read, those before it are given first; the error comes with the next
    call, and again with each one after it.
    """

    @property
    @abstractmethod
    def position(self) -> Any:
        """Where reading would go on; fit for JSON, and to be given to `open_records` again."""

    @abstractmethod
    def close(self) -> None:
        """Lets go of the file."""

    @abstractmethod
    def _append_to(self, keys: list[bytes], values: list[bytes], n: int) -> None:
        """Appends records until there are `n` or no more, each only when it is wholly read."""

    def read(self) -> tuple[bytes, bytes] | None:
        """Key and value of the next record, None at the end.

        Raises:
          DataLossError: if the file is damaged there.
          ResourceExhaustedError: if the record is longer than what the options allow.
        """
        keys: list[bytes] = []
        values: list[bytes] = []
        self._append_to(keys, values, 1)
        return (keys[0], values[0]) if keys else None

    def read_up_to(self, n: int) -> tuple[list[bytes], list[bytes]]:
        """Keys and values of the next `n` records, of fewer only if no more can be read.

        Raises:
          InvalidArgumentError: if `n` is not positive.
          OpError: as for `read`, if already the first one cannot be read.
        """
        if n <= 0:
            raise InvalidArgumentError(f"expected a positive number of records, got {n}")
        keys: list[bytes] = []
        values: list[bytes] = []
        try:
            self._append_to(keys, values, n)
        except OpError:
            if not keys:
                raise
        return keys, values


def text_of(name: bytes) -> str:
    """The name of a file as messages show it, whatever bytes it is of."""
    return name.decode(errors="backslashreplace")


def count_of(value: Any, name: bytes, what: str, least: int = 0) -> int:
    """The value, which must be a number of things.

    Raises:
      InvalidArgumentError: if it is no integer or less than `least`.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    raise InvalidArgumentError(
        f"{text_of(name)}: expected an integer of {least} or more as {what}, got {value!r}"
    )

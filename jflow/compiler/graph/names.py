"""Unique names for the operations of a graph."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\-/\\]*")


class Names:
    """The names in use in a graph, compared without case."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def copy(self) -> Names:
        """The same names in use, for a copy of the graph."""
        copied = Names()
        copied._counts.update(self._counts)
        return copied

    def unique(self, name: str) -> str:
        """Reserves a name, with `_1`, `_2`, … appended if it is in use.

        Raises:
          ValueError: if it is not a valid name.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is not a valid node name: expected a letter, digit or '.', "
                "then letters, digits and any of '_.-/\\'"
            )
        key = name.casefold()
        count = self._counts.get(key, 0)
        self._counts[key] = count + 1
        if not count:
            return name
        unique = f"{name}_{count}"
        while unique.casefold() in self._counts:
            count += 1
            unique = f"{name}_{count}"
        self._counts[key] = count + 1
        self._counts[unique.casefold()] = 1
        return unique

"""The names of a graph's operations."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\-/\\]*")


class Names:
    """The names that are taken in a graph; upper and lower case are the same."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def unique(self, name: str) -> str:
        """Takes a name, with `_1`, `_2`, … when it is taken already.

        Raises:
          ValueError: if it is not a valid name.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is not a valid node name: start with a letter, digit or '.', "
                "go on with letters, digits and any of '_.-/\\'"
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

"""Where the variables of a model are, by the paths of its arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeAlias, TypeVar

from jflow.client.binding.structure import Leaf

T = TypeVar("T")

Rules: TypeAlias = T | Mapping[str, T] | Callable[[str, Any], T | None] | None
"""One answer for all arrays; answers by patterns of paths, of which the first that matches counts;
or a function of a path and an array. None, or no match, says nothing."""


def answer(rules: Rules[T], leaf: Leaf) -> T | None:
    """Returns what rules say of an array."""
    if isinstance(rules, Mapping):
        return next(
            (one for pattern, one in rules.items() if fnmatchcase(leaf.path, pattern)), None
        )
    if callable(rules):
        return rules(leaf.path, leaf.value)
    return rules


def unused(rules: Rules[Any], leaves: Sequence[Leaf]) -> list[str]:
    """Returns the patterns that no path matches."""
    if not isinstance(rules, Mapping):
        return []
    return [
        pattern for pattern in rules if not any(fnmatchcase(leaf.path, pattern) for leaf in leaves)
    ]

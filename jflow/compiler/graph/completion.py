"""Attribute completion in editors."""

from __future__ import annotations

from collections.abc import Iterable


def visible(names: Iterable[str], *internal: str) -> list[str]:
    """Returns names for `dir`, without those that are internal to jflow."""
    return [name for name in names if name not in internal]

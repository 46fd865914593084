"""Names that editors offer after a dot."""

from __future__ import annotations

from collections.abc import Iterable


def visible(names: Iterable[str], *internal: str) -> list[str]:
    """The names for `dir`, without those that are for other parts of jflow only."""
    return [name for name in names if name not in internal]

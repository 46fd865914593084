"""`End`: how a hold ends."""

from __future__ import annotations

from enum import IntEnum


class End(IntEnum):
    """How a hold ends; the values are those on the wire."""

    KEPT = 0
    """The state is where it was."""
    MOVED = 1
    """The state is at the target."""
    UNKNOWN = 2
    """Only the source knows."""

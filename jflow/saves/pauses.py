"""For how long steps are held back by a save, and how often it tries."""

from __future__ import annotations

from collections.abc import Iterator

FIRST_PAUSE_S = 0.25
"""How long steps are held back in the first attempt at most, in seconds."""

LONGEST_PAUSE_S = 4.0
"""The longest time that steps are held back at once, in seconds."""

PATIENCE_S = 60.0
"""How long a save or restore waits for steps in all, in seconds, if its caller has no deadline."""


def pauses() -> Iterator[float]:
    """The longest time of each attempt in turn, in seconds; between two, steps go on as long."""
    seconds = FIRST_PAUSE_S
    while True:
        yield seconds
        seconds = min(2 * seconds, LONGEST_PAUSE_S)

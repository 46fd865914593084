"""`RateLimit`: bounds how many records of one kind are logged, so that no peer can fill a disk."""

from __future__ import annotations

import logging
from dataclasses import dataclass

BURST = 20
"""How many records of a kind may come at once."""
EACH_S = 1.0
"""One more of a kind may come each so many seconds."""

_MAX_KINDS = 256
_OTHERS = ""


@dataclass
class _Kind:
    left: float
    at: float
    n_left_out: int = 0


class RateLimit(logging.Filter):
    """Lets `BURST` records of a kind pass at once, and then one each `EACH_S`.

    A kind is a logger and an event or format. A record that passes after others were left out has
    their number as `n_left_out`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[str, _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record passes; its own time is the clock."""
        name = f"{record.name} {record.msg}"
        if name not in self._kinds and len(self._kinds) >= _MAX_KINDS:
            name = _OTHERS
        kind = self._kinds.setdefault(name, _Kind(BURST, record.created))
        passed = max(record.created - kind.at, 0.0)
        kind.left, kind.at = min(kind.left + passed / EACH_S, BURST), record.created
        if kind.left < 1:
            kind.n_left_out += 1
            return False
        kind.left -= 1
        if kind.n_left_out:
            record.n_left_out, kind.n_left_out = kind.n_left_out, 0
        return True

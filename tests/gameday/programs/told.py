"""How the programs tell what they do, and learn that the day is over."""

from __future__ import annotations

import json
import select
import sys
from typing import Any

PAUSE_S = 0.2
"""How long the innocent rest between two rounds, in seconds: processes start on the same cores."""


def tell(**message: Any) -> None:
    """Prints a line of JSON for the operator."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def is_over(seconds: float = 0.0) -> bool:
    """Whether a line of input has come, or comes within some seconds."""
    return bool(select.select([sys.stdin], [], [], seconds)[0])

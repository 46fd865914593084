"""Heartbeat: detects that the other end of an open stream does not respond.

A process that is stopped, or whose event loop hangs, keeps its connections. Transports notice the
first, with signals that their own threads answer; only an answer of the event loop shows the
second. So an end that waits for answers asks for a sign of life when it has heard nothing for a
while, and gives the stream up if none comes.

A state machine without a clock: it counts ticks, which come `TICKS` times in the time after which
the other end counts as lost. A process that was stopped itself has no ticks meanwhile, and so does
not blame others when it goes on.
"""

from __future__ import annotations

import os
from enum import Enum

from jflow.base.text import seconds_text
from jflow.errors import InvalidArgumentError

VARIABLE = "JFLOW_LIVENESS_S"
"""After how many seconds without a sign of life the other end counts as lost."""

DEFAULT_S = 15.0
LEAST_S = 1.5
MOST_S = 3600.0

TICKS = 13
"""How many ticks there are in that time; one more than it takes, as the first may come at once."""

_PING_TICK = 8
_LOST_TICK = 12


def liveness_s() -> float:
    """Returns the silence, in seconds, after which the other end of a stream counts as lost.

    Raises:
      InvalidArgumentError: if the environment variable is not a number of seconds, or out of range.
    """
    text = os.environ.get(VARIABLE, "")
    if not text:
        return DEFAULT_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not LEAST_S <= seconds <= MOST_S:
        raise InvalidArgumentError(
            f"{VARIABLE} must be a number of seconds from {LEAST_S:g} to {MOST_S:g}, got {text!r}"
        )
    return seconds


def silence(seconds: float) -> str:
    """Describes the silence for which a stream was given up, as part of a message."""
    return f"it has not answered for {seconds_text(seconds)}"


class Beat(Enum):
    """What to do at a tick of the heartbeat."""

    NOTHING = 0
    ASK = 1
    LOST = 2


class Heartbeat:
    """Counts the ticks for which a stream has been silent while a reply is awaited."""

    def __init__(self) -> None:
        self._n_silent = 0
        self._last_heard = 0

    def tick(self, heard: int, *, is_waiting: bool) -> Beat:
        """Counts a tick; returns what to do.

        Args:
          heard: a number that has changed if there was a sign of life since the last tick.
          is_waiting: whether an answer is waited for.
        """
        if not is_waiting or heard != self._last_heard:
            self._n_silent, self._last_heard = 0, heard
            return Beat.NOTHING
        self._n_silent += 1
        if self._n_silent >= _LOST_TICK:
            return Beat.LOST
        return Beat.ASK if self._n_silent == _PING_TICK else Beat.NOTHING

"""`Numbering`: numbers the steps that a session repeats itself when their answers are lost."""

from __future__ import annotations

import threading

from jflow.state.effects import Effect


class Numbering:
    """The sequences of a session's steps; thread-safe.

    Args:
      client: the name of the session.
    """

    def __init__(self, client: str) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._n_begun = 0
        # Those that have not ended, in ascending order.
        self._open: dict[int, None] = {}

    def begin(self) -> Effect:
        """The first attempt of a step. When no other will follow, `end` has to be called."""
        with self._lock:
            sequence = self._n_begun
            self._n_begun += 1
            self._open[sequence] = None
            acknowledged = next(iter(self._open))
        return Effect(self._client, 0, sequence, acknowledged=acknowledged, is_saved=False)

    def end(self, sequence: int) -> None:
        """All attempts of a step have ended."""
        with self._lock:
            del self._open[sequence]

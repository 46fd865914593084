"""`Numbering`: numbers the steps that a session repeats itself when their answers are lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from jflow.effects import Effect


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

    @contextmanager
    def next(self) -> Iterator[Effect]:
        """A block that makes all attempts of one step; gives the first one."""
        with self._lock:
            sequence = self._n_begun
            self._n_begun += 1
            self._open[sequence] = None
            acknowledged = next(iter(self._open))
        try:
            yield Effect(self._client, 0, sequence, acknowledged=acknowledged, is_saved=False)
        finally:
            with self._lock:
                del self._open[sequence]

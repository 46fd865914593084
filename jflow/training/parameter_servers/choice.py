"""Which parameter server gets the next variable."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

Choice = Callable[[tuple[int, ...], Any], int]
"""Takes the shape and dtype of a variable; returns the position of its parameter server."""

PLACEMENTS = ("round_robin", "by_size")


def choice_of(placement: str | Choice, n_servers: int) -> Choice:
    """Returns what chooses the parameter servers of variables.

    Args:
      placement: a name of `PLACEMENTS`, or a function that is used as it is.
      n_servers: the number of parameter servers.

    Raises:
      ValueError: if there is no such name.
    """
    if callable(placement):
        return _checked(placement, n_servers)
    if placement == "round_robin":
        return _RoundRobin(n_servers)
    if placement == "by_size":
        return _BySize(n_servers)
    raise ValueError(
        f"expected {' or '.join(map(repr, PLACEMENTS))} or a function of a shape and a dtype as "
        f"variable_placement, got {placement!r:.80}"
    )


class _RoundRobin:
    """Takes the parameter servers in turn."""

    def __init__(self, n_servers: int) -> None:
        self._n = n_servers
        self._next = 0
        self._lock = threading.Lock()

    def __call__(self, shape: tuple[int, ...], dtype: Any) -> int:
        with self._lock:
            chosen = self._next
            self._next = (chosen + 1) % self._n
        return chosen


class _BySize:
    """Takes the parameter server with the fewest bytes, the first one of several."""

    def __init__(self, n_servers: int) -> None:
        self._loads = [0] * n_servers
        self._lock = threading.Lock()

    def __call__(self, shape: tuple[int, ...], dtype: Any) -> int:
        with self._lock:
            chosen = self._loads.index(min(self._loads))
            self._loads[chosen] += math.prod(shape) * int(dtype.itemsize)
        return chosen


def _checked(choose: Choice, n_servers: int) -> Choice:
    def checked(shape: tuple[int, ...], dtype: Any) -> int:
        chosen = choose(shape, dtype)
        if chosen not in range(n_servers):
            raise ValueError(
                f"variable_placement must return a parameter server from 0 to {n_servers - 1}, got "
                f"{chosen!r} for shape {shape}"
            )
        return chosen

    return checked

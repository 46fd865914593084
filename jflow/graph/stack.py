"""The default session, and what blocks say about new operations: names, containers and so on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from jflow.context import Stack


class Runner(Protocol):
    """What a default session can do for `tensor.eval()` and `op.run()`."""

    def run(self, fetches: Any, feed_dict: Any = None) -> Any:
        """Runs what `fetches` needs and returns values in its structure."""


sessions: Stack[Runner] = Stack()
"""Default sessions."""


def runner(session: Any) -> Runner:
    """The session itself, or the default one.

    Raises:
      ValueError: if there is neither.
    """
    found: Runner | None = session or sessions.top
    if found is None:
        raise ValueError(
            "no default session: use `with jflow.Session():` around the call or pass session="
        )
    return found


class _Decoding(threading.local):
    eagerly = False


_decoding = _Decoding()


def decodes_eagerly() -> bool:
    """Whether the decoders of this thread take and give arrays, as in a dataset's function."""
    return _decoding.eagerly


class EagerDecoding:
    """A block in which the decoders of `jflow.ops` compute arrays at once, without a graph."""

    def __enter__(self) -> None:
        self._before = _decoding.eagerly
        _decoding.eagerly = True

    def __exit__(self, *error: object) -> None:
        _decoding.eagerly = self._before


class Scopes(threading.local):
    """What the blocks that are open on this thread say about new operations of one graph."""

    def __init__(self) -> None:
        self.names = ""
        self.container = ""
        self.control_inputs: tuple[Any, ...] = ()

    @contextmanager
    def replaced(self, **values: Any) -> Iterator[None]:
        """Sets attributes inside the block."""
        before = {key: getattr(self, key) for key in values}
        self.__dict__.update(values)
        try:
            yield
        finally:
            self.__dict__.update(before)

"""The default session, and the scopes of new operations: names, container, control inputs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from jflow.base.context import Stack


class DefaultSession(Protocol):
    """The interface of a default session, for `tensor.eval()` and `op.run()`."""

    def run(self, fetches: Any, feed_dict: Any = None) -> Any:
        """Computes `fetches` and returns their values in the same structure."""


sessions: Stack[DefaultSession] = Stack()
"""Default sessions."""


def runner(session: Any) -> DefaultSession:
    """Returns the session, or the default session if it is None.

    Raises:
      ValueError: if there is neither.
    """
    current: DefaultSession | None = session or sessions.top
    if current is None:
        raise ValueError(
            "no default session: use `with jflow.Session():` around the call or pass session="
        )
    return current


class _Decoding(threading.local):
    eagerly = False


_decoding = _Decoding()


def decodes_eagerly() -> bool:
    """Whether decoders on this thread compute arrays at once instead of adding operations."""
    return _decoding.eagerly


class EagerDecoding:
    """Context manager in which decoders such as `decode_csv` compute arrays, without a graph."""

    def __enter__(self) -> None:
        self._before = _decoding.eagerly
        _decoding.eagerly = True

    def __exit__(self, *error: object) -> None:
        _decoding.eagerly = self._before


class Scope(NamedTuple):
    """The current settings for new operations of one graph.

    Attributes:
      names: the prefix of names.
      container: the container of variables and other resources.
      control_inputs: the operations to run before.
      location: the line that they are made at; None for that of the user's running frame.
      loop: the open loop whose body they are in; None outside of one.
    """

    names: str = ""
    container: str = ""
    control_inputs: tuple[Any, ...] = ()
    location: tuple[str, int, str] | None = None
    loop: Any = None


_ROOT = Scope()


class Scopes:
    """The current `Scope` of one graph on each thread."""

    def __init__(self) -> None:
        self._blocks: Stack[Scope] = Stack(is_strict=False)

    @property
    def here(self) -> Scope:
        """The scope of this thread."""
        return self._blocks.top or _ROOT

    @contextmanager
    def replaced(self, **values: Any) -> Iterator[None]:
        """Context manager that replaces some fields of the current scope."""
        with self._blocks.pushed(self.here._replace(**values)):
            yield

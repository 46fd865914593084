"""`remote`: marks the methods of a service that other tasks, and clients, may call as RPCs.

What crosses such a call is immutable or handed over for good: a task calls its own services
directly, and shares with them what another task would have got as a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from jflow.base.roles import AccessRole

F = TypeVar("F", bound=Callable[..., Any])

FIRST_VERSION = 5
"""The version of the protocol in which methods became RPCs."""


@dataclass(frozen=True)
class RemoteMark:
    """The arguments of `remote`, kept as the attribute `__remote__` of the method."""

    needs: AccessRole
    since: int
    doing: str


def remote(
    *, needs: AccessRole, doing: str = "a call", since: int = FIRST_VERSION
) -> Callable[[F], F]:
    """Marks a method of a service as an RPC; see `jflow.net.protocol.signatures`.

    Args:
      needs: the least role that may call it.
      doing: describes a call, for messages about deadlines: a format string that may name the
        parameters. If several are named by a list, it is written with commas.
      since: the version of the protocol that it came with.
    """

    def mark(method: F) -> F:
        method.__remote__ = RemoteMark(needs, since, doing)  # type: ignore[attr-defined]
        return method

    return mark

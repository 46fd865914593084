"""The current connection: the innermost context's, else the process's, else one to this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jflow.base.context import Fallback
from jflow.base.options import ConfigProto
from jflow.client.functions.connection import Connection
from jflow.compiler.graph import owners

_DEFAULT = Fallback(Connection)
"""The connection to this process that functions use outside of any other."""


def connect(
    target: str = "",
    config: ConfigProto | None = None,
    *,
    placement: str | Callable[..., Any] | None = None,
) -> Connection:
    """Connects to a cluster, on which functions run and variables are made from then on.

    In a notebook, call it once: the connection is current in all threads until the next call. In a
    program, use `with jflow.connect(target):`; the connection is current in this thread inside the
    block and closed at its end.

    Args:
      target: "" for this process, or "grpc://host:port" for any server of a cluster.
      config: options.
      placement: what chooses the devices of functions, in place of `ConfigProto.placement`.

    Returns:
      The connection. The server is contacted at first use.

    Raises:
      TypeError: if an argument has the wrong type.
      NotFoundError: if the target does not start with "grpc://".
      InvalidArgumentError: if there is no such placement strategy.
      ValueError: if its address is malformed.
    """
    connection = Connection(target, config, placement=placement)
    owners.own_everywhere(connection)
    return connection


def current() -> Connection:
    """Returns the current connection."""
    owner = owners.innermost()
    if owner is not None:
        assert isinstance(owner, Connection)
        return owner
    return _DEFAULT.get()

"""`DataStreams`: the choice of data streams by JFLOW_TRANSPORT, and its log messages."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from enum import Enum
from functools import cache

from jflow.errors import InvalidArgumentError, UnavailableError

_LOG = logging.getLogger(__name__)
VARIABLE = "JFLOW_TRANSPORT"
"""What carries messages: "grpc", "unix" or "tcp" and nothing else, or "auto": the best of them."""


class DataStreams(Enum):
    """Whether sessions use data streams, and which."""

    NEVER = "grpc"
    WHERE_POSSIBLE = "auto"
    UNIX = "unix"
    TCP = "tcp"

    @property
    def has_inproc(self) -> bool:
        """Whether a session on a server of its own process may use no stream at all."""
        return self is DataStreams.WHERE_POSSIBLE

    @property
    def has_unix(self) -> bool:
        """Whether Unix sockets may be used."""
        return self in (DataStreams.WHERE_POSSIBLE, DataStreams.UNIX)

    @property
    def has_tcp(self) -> bool:
        """Whether TCP connections may be used."""
        return self in (DataStreams.WHERE_POSSIBLE, DataStreams.TCP)


def chosen_data_streams(environ: Mapping[str, str] = os.environ) -> DataStreams:
    """Reads JFLOW_TRANSPORT. Raises InvalidArgumentError if its value is not a valid one."""
    text = environ.get(VARIABLE, "")
    try:
        return DataStreams(text) if text else DataStreams.WHERE_POSSIBLE
    except ValueError:
        raise InvalidArgumentError(
            f"{VARIABLE} must be 'grpc', 'unix', 'tcp' or 'auto', or not set, got {text!r}"
        ) from None


def without_data_stream(choice: DataStreams, reason: str) -> None:
    """Logs why a session has no data stream.

    Raises:
      UnavailableError: if it must have one.
    """
    if choice in (DataStreams.UNIX, DataStreams.TCP):
        raise UnavailableError(
            f"{VARIABLE}={choice.value}, but the server has no such data stream: {reason}"
        )
    log_once(f"messages go over gRPC: {reason}")


@cache
def log_once(what: str) -> None:
    """Logs a message once in the life of the process."""
    _LOG.info("%s", what)

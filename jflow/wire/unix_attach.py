"""Attaches data streams to sessions: the caller's side, on an event loop and on threads."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import socket
from collections.abc import Mapping
from enum import Enum
from functools import cache

from jflow.deadline import Deadline
from jflow.errors import InvalidArgumentError, UnavailableError
from jflow.protocol.offers import PROOF_BYTES, DataOffer
from jflow.wire.machine import boot_id
from jflow.wire.unix_sockets import is_of_this_user
from jflow.wire.unix_stream import UnixStream

_LOG = logging.getLogger(__name__)
VARIABLE = "JFLOW_TRANSPORT"
"""What carries messages: "grpc", "unix" (nothing else), or "auto" (unix where it is possible)."""


class DataStreams(Enum):
    """Whether sessions use data streams."""

    NEVER = "grpc"
    WHERE_POSSIBLE = "auto"
    ALWAYS = "unix"


DEFAULT = DataStreams.WHERE_POSSIBLE
"""If the variable is not set."""


def chosen_data_streams(environ: Mapping[str, str] = os.environ) -> DataStreams:
    """What JFLOW_TRANSPORT says. Raises InvalidArgumentError if it is not one of its values."""
    text = environ.get(VARIABLE, "")
    try:
        return DataStreams(text) if text else DEFAULT
    except ValueError:
        raise InvalidArgumentError(
            f"{VARIABLE} must be 'grpc', 'unix' or 'auto', or not set, got {text!r}"
        ) from None


class UnattachedError(Exception):
    """There can be no data stream; the reason is part of a sentence."""


async def attach(offer: DataOffer | None) -> UnixStream:
    """Attaches the data stream of an offer. Raises UnattachedError."""
    loop = asyncio.get_running_loop()
    offer = _checked(offer)
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connecting.setblocking(False)
        await loop.sock_connect(connecting, offer.path)
        _check_user(connecting)
        await loop.sock_sendall(connecting, offer.caller_proof)
        answer = b""
        while len(answer) < PROOF_BYTES and (
            more := await loop.sock_recv(connecting, PROOF_BYTES - len(answer))
        ):
            answer += more
        _check_answer(offer, answer)
        return UnixStream(connecting)
    except OSError as error:
        connecting.close()
        raise UnattachedError(_unreachable(error)) from None
    except BaseException:
        connecting.close()
        raise


def attached_socket(offer: DataOffer | None, limit: Deadline) -> socket.socket:
    """The connected socket of a data stream, for use by threads.

    Raises:
      UnattachedError: if there can be none.
      OpError: if the limit passes.
    """
    offer = _checked(offer)
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connecting.settimeout(limit.remaining())
        connecting.connect(offer.path)
        _check_user(connecting)
        connecting.sendall(offer.caller_proof)
        answer = b""
        while len(answer) < PROOF_BYTES and (more := connecting.recv(PROOF_BYTES - len(answer))):
            answer += more
        _check_answer(offer, answer)
        connecting.setblocking(False)
        return connecting
    except TimeoutError:
        connecting.close()
        # Not without the data stream then: the server may have attached it.
        raise limit.error("attaching the data stream of a session") from None
    except OSError as error:
        connecting.close()
        raise UnattachedError(_unreachable(error)) from None
    except BaseException:
        connecting.close()
        raise


def without(choice: DataStreams, reason: str, server: str) -> None:
    """Tells that a session has no data stream.

    Raises:
      UnavailableError: if it must have one.
    """
    if choice is DataStreams.ALWAYS:
        raise UnavailableError(f"{VARIABLE}=unix, but {server} has no data stream: {reason}")
    _tell(reason)


@cache
def _tell(reason: str) -> None:
    """Once for each reason."""
    _LOG.info("messages go over gRPC: %s", reason)


def _checked(offer: DataOffer | None) -> DataOffer:
    """An offer that is of this machine."""
    if offer is None:
        raise UnattachedError("the server offers none")
    if not boot_id() or offer.boot_id != boot_id():
        raise UnattachedError("the server is on another machine")
    return offer


def _check_user(connected: socket.socket) -> None:
    if not is_of_this_user(connected):
        raise UnattachedError("a process of another user listens at the path of its socket")


def _check_answer(offer: DataOffer, answer: bytes) -> None:
    if not answer:
        raise UnattachedError("the server has refused the data stream")
    if not hmac.compare_digest(answer, offer.server_proof):
        raise UnattachedError("another process listens at the path of its socket")


def _unreachable(error: OSError) -> str:
    return f"its socket cannot be reached ({error.strerror or error})"

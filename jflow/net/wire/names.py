"""Resolves host names before gRPC connects, because gRPC retries an unknown name forever."""

from __future__ import annotations

import ipaddress
import socket
import threading
from concurrent.futures import Future

from jflow.base.cluster import numeric_host, split_address
from jflow.base.deadline import Deadline
from jflow.errors import UnavailableError


def looked_up(address: str) -> Future[tuple[str, ...]]:
    """Starts to resolve the host of an address, in a thread because that may take long.

    Returns:
      A future of its numeric addresses; it fails with `OSError` if the host does not resolve.
    """
    names: Future[tuple[str, ...]] = Future()
    names.set_running_or_notify_cancel()  # the future may have been cancelled
    host, port = split_address(address)
    host = numeric_host(host)
    if _is_literal(host):
        names.set_result((host,))
        return names

    def look_up() -> None:
        try:
            resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            names.set_exception(error)
        else:
            names.set_result(tuple(str(where[0]) for *_, where in resolved))

    # A daemon thread: a resolver that hangs must not keep the process from exiting.
    threading.Thread(target=look_up, name=f"jflow looks up {host}", daemon=True).start()
    return names


def resolve(address: str, limit: Deadline) -> tuple[str, ...]:
    """Resolves the host of an address to numeric addresses, within a deadline."""
    try:
        return looked_up(address).result(limit.remaining())
    except TimeoutError:
        raise limit.error(f"resolving the host name of {address}") from None
    except (OSError, UnicodeError) as error:
        raise UnavailableError(
            f"no session on 'grpc://{address}': {unresolved(address, error)}; "
            "correct the target, or make the name known to this machine"
        ) from None


def unresolved(address: str, error: BaseException) -> str:
    """Describes why a host name does not resolve, for a message."""
    host, _ = split_address(address)
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return f"the host name {host!r} does not resolve ({reason})"


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True

"""Host names, resolved before gRPC connects: gRPC retries a name that does not exist forever."""

from __future__ import annotations

import ipaddress
import socket
import threading
from concurrent.futures import Future

from jflow.cluster import split_address


def looked_up(address: str) -> Future[None]:
    """Resolves the host of an address, on a thread because the system may take its time.

    Returns:
      A future that is done when the host has an address; it fails with `OSError` if it has none.
    """
    found: Future[None] = Future()
    found.set_running_or_notify_cancel()  # the thread ends it, even if nothing waits any more
    host, port = split_address(address)
    if _is_literal(host):
        found.set_result(None)
        return found

    def look_up() -> None:
        try:
            socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            found.set_exception(error)
        else:
            found.set_result(None)

    # A daemon: a resolver that hangs does not keep the process from ending.
    threading.Thread(target=look_up, name=f"jflow looks up {host}", daemon=True).start()
    return found


def unresolved(address: str, error: BaseException) -> str:
    """The end of a message about an address whose host has no address."""
    host, _ = split_address(address)
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return f"the host name {host!r} does not resolve ({reason})"


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True

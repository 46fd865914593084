"""Finds out why a TLS handshake fails, which gRPC does not report."""

from __future__ import annotations

import errno
import select
import socket
import ssl
import threading
from concurrent.futures import Future
from contextlib import suppress

from jflow.base.cluster import numeric_host, split_address
from jflow.base.deadline.clock import now
from jflow.net.wire.tls import VARIABLE, Tls, reason_text
from jflow.net.wire.tls_connection import TlsConnection

_ATTEMPT_S = 5.0
"""How long an attempt may take, in seconds."""

_AGAIN_S = 1.0
"""How long after an attempt that has found nothing to try again, in seconds."""

_LOOK_S = 0.05
"""How often to see whether the answer is still wanted, in seconds."""


def look_for_refusal(
    tls: Tls | None, address: str, name: str, over: threading.Event, after_s: float = 0.0
) -> Future[str | None]:
    """Connects to a server without gRPC, in a thread, to find out why gRPC cannot.

    Args:
      tls: this end's certificates; None if it has none.
      address: "host:port".
      name: the name that the server's certificate must have.
      over: set when the answer is not wanted any more.
      after_s: how long to wait for that before the first attempt, in seconds.

    Returns:
      What is wrong, as a sentence without its subject, the server; None if `over` was set before
      that was known, for example because nothing listens at the address.
    """
    outcome: Future[str | None] = Future()
    outcome.set_running_or_notify_cancel()

    def look() -> None:
        refusal = None
        wait_s = after_s
        while refusal is None and not over.wait(wait_s):
            refusal = _refusal(tls, address, name, _Limit(over))
            if tls is not None and refusal == _certificate_refusal(tls):
                # A server that is just stopping closes a connection, too, and refuses the next one.
                refusal = _refusal(tls, address, name, _Limit(over))
            wait_s = _AGAIN_S
        outcome.set_result(refusal)

    # A daemon thread, so that a server that does not answer cannot keep the process from exiting.
    threading.Thread(target=look, name=f"jflow asks {address}", daemon=True).start()
    return outcome


class _Limit:
    """The time limit of an attempt, whatever the other end sends meanwhile.

    Args:
      over: set when the answer is not wanted any more.
    """

    def __init__(self, over: threading.Event) -> None:
        self._over, self._end = over, now() + _ATTEMPT_S

    def wait(self, connection: socket.socket | TlsConnection, events: int) -> None:
        """Waits until a connection is ready for one of `select`'s events.

        Raises:
          TimeoutError: if the time is up, or the answer is not wanted any more.
        """
        ready = select.poll()  # unlike select, it takes descriptors of any number
        ready.register(connection, events)
        while not self._over.is_set() and now() < self._end:
            if ready.poll(_LOOK_S * 1000):
                return
        raise TimeoutError


def _refusal(tls: Tls | None, address: str, name: str, limit: _Limit) -> str | None:
    host, port = split_address(address)
    try:
        connection = _connect_first(numeric_host(host), port, limit)
    except OSError:
        return None
    with connection:
        if tls is None:
            return _plain_refusal(connection, name, limit)
        return _tls_refusal(tls, connection, name, limit)


def _connect_first(host: str, port: int, limit: _Limit) -> socket.socket:
    """Connects to the first address of a host that accepts a connection. Raises OSError."""
    for kind, *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        connection = socket.socket(kind)
        try:
            connection.setblocking(False)
            if connection.connect_ex(address) in (0, errno.EINPROGRESS):
                limit.wait(connection, select.POLLOUT)
                if not connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    return connection
        except BaseException:
            connection.close()
            raise
        connection.close()
    raise ConnectionRefusedError


def _plain_refusal(connection: socket.socket, name: str, limit: _Limit) -> str | None:
    """Returns why a client without TLS is refused if the server speaks TLS; None otherwise."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        _shake_hands(TlsConnection(connection, context, name), limit)
    except ssl.SSLError as error:
        if "alert" not in reason_text(error):
            return None
    except (OSError, ValueError):
        return None
    return (
        f"encrypts its streams, and this end does not: name the directory of its certificates by "
        f"{VARIABLE} (see `jflow certs init`)"
    )


def _tls_refusal(tls: Tls, connection: socket.socket, name: str, limit: _Limit) -> str | None:
    encrypted = TlsConnection(connection, tls.client_context(), name)
    try:
        _shake_hands(encrypted, limit)
    except ssl.SSLCertVerificationError as error:
        return (
            f"has a certificate that was refused: {error.verify_message}; expected one of "
            f"{name} that {tls.authority_path} has signed"
        )
    except ssl.SSLError as error:
        return _protocol_refusal(error, tls)
    except (OSError, ValueError):
        return None
    return None if _is_admitted(encrypted, limit) else _certificate_refusal(tls)


def _shake_hands(connection: TlsConnection, limit: _Limit) -> None:
    """Performs the handshake. Raises OSError, such as SSLError."""
    for events in connection.handshake():
        limit.wait(connection, events)


def _is_admitted(connection: TlsConnection, limit: _Limit) -> bool:
    """Whether a server goes on after the handshake; in TLS 1.3 it refuses a caller only then.

    gRPC's servers do not say why, they close the connection. Otherwise they speak first.
    """
    try:
        while True:
            with suppress(BlockingIOError):
                return bool(connection.receive_into(memoryview(bytearray(1)), lambda _: None))
            limit.wait(connection, select.POLLIN)
    except TimeoutError:
        return True
    except OSError:  # which an SSLError is
        return False


def _protocol_refusal(error: ssl.SSLError, tls: Tls) -> str:
    reason = reason_text(error)
    if "alert" in reason:
        return _certificate_refusal(tls)
    return (
        f"does not speak TLS ({reason}), and this end encrypts its streams: start the server with "
        f"its certificates in {VARIABLE}, or unset that for this end"
    )


def _certificate_refusal(tls: Tls) -> str:
    return (
        f"refused the certificate in {tls.identity_path}: it has expired, or another authority "
        "than the server's has signed it; make certificates for both with one `jflow certs init`"
    )

"""The reason why two ends cannot agree on encryption, which gRPC does not tell its callers."""

from __future__ import annotations

import socket
import ssl
import threading
from concurrent.futures import Future

from jflow.cluster import numeric_host, split_address
from jflow.wire.tls import VARIABLE, Tls

_ATTEMPT_S = 5.0
_AGAIN_S = 1.0
"""How long after an attempt that has found nothing to try again, in seconds."""


def look_for_refusal(
    tls: Tls | None, address: str, name: str, over: threading.Event, after_s: float = 0.0
) -> Future[str | None]:
    """Connects to a server beside gRPC, in a thread, to learn why gRPC cannot.

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
    found: Future[str | None] = Future()
    found.set_running_or_notify_cancel()

    def look() -> None:
        refusal = None
        wait_s = after_s
        while refusal is None and not over.wait(wait_s):
            refusal = _refusal(tls, address, name)
            if tls is not None and refusal == _refused(tls):
                # A server that is just stopping closes a connection, too, and refuses the next one.
                refusal = _refusal(tls, address, name)
            wait_s = _AGAIN_S
        found.set_result(refusal)

    # A daemon thread, so that a server that does not answer cannot keep the process from exiting.
    threading.Thread(target=look, name=f"jflow asks {address}", daemon=True).start()
    return found


def _refusal(tls: Tls | None, address: str, name: str) -> str | None:
    host, port = split_address(address)
    try:
        connection = socket.create_connection((numeric_host(host), port), _ATTEMPT_S)
    except OSError:
        return None
    with connection:
        return _refusal_of_plain(connection) if tls is None else _refusal_of(tls, connection, name)


def _refusal_of_plain(connection: socket.socket) -> str | None:
    """What is wrong for an end without certificates: that the server speaks TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        context.wrap_socket(connection).close()
    except ssl.SSLError as error:
        if "ALERT" not in (error.reason or ""):
            return None
    except (OSError, ValueError):
        return None
    return (
        f"encrypts its streams, and this end does not: name the directory of its certificates by "
        f"{VARIABLE} (see `jflow certs init`)"
    )


def _refusal_of(tls: Tls, connection: socket.socket, name: str) -> str | None:
    try:
        stream = tls.client_context().wrap_socket(connection, server_hostname=name)
    except ssl.SSLCertVerificationError as error:
        return (
            f"has a certificate that was refused: {error.verify_message}; expected one of "
            f"{name} that {tls.authority_path} has signed"
        )
    except ssl.SSLError as error:
        return _of_protocol(error, tls)
    except (OSError, ValueError):
        return None
    with stream:
        return None if _is_admitted(stream) else _refused(tls)


def _is_admitted(stream: ssl.SSLSocket) -> bool:
    """Whether a server goes on after the handshake; with TLS 1.3 it refuses its caller only then.

    gRPC's servers do not say why, they close the connection. Otherwise they speak first.
    """
    try:
        return bool(stream.recv(1))
    except TimeoutError:
        return True
    except OSError:  # which an SSLError is
        return False


def _of_protocol(error: ssl.SSLError, tls: Tls) -> str:
    reason = (error.reason or str(error)).lower().replace("_", " ")
    if "alert" in reason:
        return _refused(tls)
    return (
        f"does not speak TLS ({reason}), and this end encrypts its streams: start the server with "
        f"its certificates in {VARIABLE}, or unset that for this end"
    )


def _refused(tls: Tls) -> str:
    return (
        f"refused the certificate in {tls.identity_path}: it has expired, or another authority "
        "than the server's has signed it; make certificates for both with one `jflow certs init`"
    )

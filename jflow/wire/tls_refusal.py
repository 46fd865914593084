"""The reason why a TLS connection cannot be made, which gRPC does not tell its callers."""

from __future__ import annotations

import socket
import ssl
import threading
from concurrent.futures import Future

from jflow.cluster import split_address
from jflow.wire.tls import Tls

_ATTEMPT_S = 5.0


def look_for_refusal(tls: Tls, address: str, name: str) -> Future[str | None]:
    """Connects to a server once more, in a thread, to learn why gRPC cannot.

    Args:
      tls: this end's certificates.
      address: "host:port".
      name: the name that the server's certificate must have.

    Returns:
      What is wrong, as a sentence without its subject, the server; None if nothing is, or it cannot
      be known, for example because nothing listens at the address.
    """
    found: Future[str | None] = Future()
    found.set_running_or_notify_cancel()

    def look() -> None:
        refusal = _refusal(tls, address, name)
        # A server that is just stopping closes a connection, too, and refuses the next one.
        found.set_result(_refusal(tls, address, name) if refusal == _refused(tls) else refusal)

    # A daemon thread, so that a server that does not answer cannot keep the process from exiting.
    threading.Thread(target=look, name=f"jflow asks {address}", daemon=True).start()
    return found


def _refusal(tls: Tls, address: str, name: str) -> str | None:
    try:
        connection = socket.create_connection(split_address(address), _ATTEMPT_S)
    except OSError:
        return None
    with connection:
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
    return f"does not speak TLS ({reason}); give it the same JFLOW_TLS_DIR, or give this end none"


def _refused(tls: Tls) -> str:
    return (
        f"refused the certificate in {tls.identity_path}: it has expired, or another authority "
        "than the server's has signed it; make certificates for both with one `jflow certs init`"
    )

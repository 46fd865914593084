"""`Tls`: the certificates of this process, which encrypt streams and identify both ends.

They are in the directory JFLOW_TLS_DIR, where `jflow certs init` writes them: `ca.crt`, and for
each task and for clients one file with a private key and a certificate, `worker-1.pem` and
`client.pem`. A process needs `ca.crt` and its own file.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from jflow.base.cluster import OF_TASKS, Task, certified_name
from jflow.errors import InvalidArgumentError, NotFoundError, PermissionDeniedError
from jflow.net.wire.private_files import check_private, read_private

VARIABLE = "JFLOW_TLS_DIR"
AUTHORITY_FILE = "ca.crt"
DATA_PROTOCOL = "jflow"
"""The ALPN protocol of data streams, which differs from that of gRPC's streams."""

_RENEW = "make new certificates with `jflow certs init`"


@dataclass(frozen=True)
class Tls:
    """The certificates of one task, or of clients.

    Attributes:
      authority: the certificate that signed those of all tasks and clients, in PEM.
      identity: this end's private key and certificate, in PEM.
      authority_path, identity_path: the files that they were read from.
    """

    authority: bytes = field(repr=False)
    identity: bytes = field(repr=False)
    authority_path: str
    identity_path: str

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Returns gRPC's credentials of a caller."""
        return grpc.ssl_channel_credentials(self.authority, self.identity, self.identity)

    def server_credentials(self) -> grpc.ServerCredentials:
        """Returns gRPC's credentials of a server, which admits only callers with a certificate."""
        return grpc.ssl_server_credentials(
            [(self.identity, self.identity)], self.authority, require_client_auth=True
        )

    def client_context(self) -> ssl.SSLContext:
        """Returns a caller's context for the `ssl` module, whose errors have reasons."""
        return self._context(ssl.PROTOCOL_TLS_CLIENT)

    def server_context(self) -> ssl.SSLContext:
        """Returns a server's context for the `ssl` module."""
        context = self._context(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def data_client_context(self) -> ssl.SSLContext:
        """Like `client_context`, for data streams: with TLS 1.3 and their ALPN protocol only."""
        return _data_context(self.client_context())

    def data_server_context(self) -> ssl.SSLContext:
        """Like `server_context`, for data streams: with TLS 1.3 and their ALPN protocol only."""
        context = _data_context(self.server_context())
        context.num_tickets = 0  # streams are not resumed
        return context

    def _context(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.load_verify_locations(cadata=self.authority.decode())
        context.load_cert_chain(self.identity_path)
        context.set_alpn_protocols(["h2"])
        return context


def _data_context(context: ssl.SSLContext) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols([DATA_PROTOCOL])
    return context


def load_tls(task: Task | None, environ: Mapping[str, str] = os.environ) -> Tls | None:
    """Loads the certificates of a task, or of clients for None; None if JFLOW_TLS_DIR is not set.

    Raises:
      NotFoundError: if one of the files does not exist.
      PermissionDeniedError: if other users may read a private key or replace one of the files, or
        it is another user's.
      InvalidArgumentError: if the variable is empty, or the certificate has expired, is of another
        authority or task, or does not fit its key.
    """
    directory_name = environ.get(VARIABLE)
    if directory_name is None:
        return None
    if not directory_name:
        raise InvalidArgumentError(
            f"{VARIABLE} is set, but empty: name the directory of the certificates, or unset it to "
            "go without encryption"
        )
    directory = Path(directory_name)
    authority = directory / AUTHORITY_FILE
    identity = directory / f"{certified_name(task).removesuffix(OF_TASKS)}.pem"
    try:
        check_private(directory, directory.stat(), "700")
        tls = Tls(
            read_private(authority, 0o022), read_private(identity), str(authority), str(identity)
        )
    except FileNotFoundError as error:
        raise NotFoundError(
            f"{VARIABLE}: {error.filename} does not exist, which {task or 'a client'} needs; copy "
            "it from where `jflow certs init` was run, or run that with the present cluster"
        ) from None
    except PermissionDeniedError as error:
        raise PermissionDeniedError(f"{VARIABLE}: {error.message}; {_RENEW}") from None
    except OSError as error:
        raise PermissionDeniedError(f"{VARIABLE}: {error}") from None
    _check(tls, certified_name(task))
    return tls


def _check(tls: Tls, name: str) -> None:
    """Checks that peers will accept a certificate, with an in-memory TLS connection to itself."""
    try:
        caller, server = tls.client_context(), tls.server_context()
    except (ssl.SSLError, OSError, ValueError) as error:
        raise InvalidArgumentError(
            f"{VARIABLE}: {tls.identity_path} must have a private key and its certificate, and "
            f"{tls.authority_path} that of the authority ({error}); {_RENEW}"
        ) from None
    caller.check_hostname, caller.verify_mode = False, ssl.CERT_NONE
    try:
        names = _connected_to(server, caller)
    except ssl.SSLError as error:
        raise InvalidArgumentError(
            f"{VARIABLE}: the certificate in {tls.identity_path} is not valid with "
            f"{tls.authority_path}: {_reason(error)}; {_RENEW}"
        ) from None
    if name not in names:
        raise InvalidArgumentError(
            f"{VARIABLE}: the certificate in {tls.identity_path} is of another task: expected the "
            f"name {name}, got {', '.join(names) or 'none'}; use the file that was made for it"
        )


def _connected_to(server: ssl.SSLContext, caller: ssl.SSLContext) -> list[str]:
    """Performs a TLS handshake in memory; returns the names in the caller's certificate."""
    to_server, to_caller = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = caller.wrap_bio(to_caller, to_server)
    other = server.wrap_bio(to_server, to_caller, server_side=True)
    for _ in range(4):
        done = [_has_shaken_hands(end) for end in (one, other)]
        if all(done):
            break
    certificate: Any = other.getpeercert() or {}
    return [str(value) for _, value in certificate.get("subjectAltName", ())]


def _has_shaken_hands(end: ssl.SSLObject) -> bool:
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _reason(error: ssl.SSLError) -> str:
    """Describes why a certificate was refused, as part of a sentence."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if "self-signed" in error.verify_message or "issuer" in error.verify_message:
            return f"another authority has signed it ({error.verify_message})"
        return error.verify_message
    return reason_text(error)


def reason_text(error: ssl.SSLError) -> str:
    """Returns the reason of an error of TLS in words."""
    reason = getattr(error, "reason", None)  # errors that OpenSSL has not raised have none
    return (reason or str(error)).lower().replace("_", " ")

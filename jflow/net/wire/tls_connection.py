"""`TlsConnection`: an encrypted TCP connection, which uses OpenSSL on buffers in memory.

The sockets of the standard library's `ssl` are not used: a write that the kernel does not take has
to be repeated with the same bytes, and one thread must not read while another one writes. Here what
was encrypted is kept until the kernel takes it, and a lock is held around OpenSSL only.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any

from jflow.net.protocol.frame import Buffers
from jflow.net.wire.connections import without_delay

_RECEIVED_BYTES = 64 << 10
"""How much is taken from the kernel at once."""

_ENCRYPTED_BYTES = 256 << 10
"""How much is encrypted before it is given to the kernel; a multiple of the records of TLS."""


class TlsConnection:
    """One end of an encrypted connection; see `DataConnection`. Call `handshake` first.

    Args:
      connected: the socket; it belongs to the connection from now on.
      context: the certificates of this end.
      name: the name that the certificate of the server must have; None for the server's end.
    """

    kind = "tcp"
    passes_files = False
    is_encrypted = True

    def __init__(self, connected: socket.socket, context: ssl.SSLContext, name: str | None) -> None:
        connected.setblocking(False)
        without_delay(connected)
        self._socket = connected
        self.fileno, self.shutdown = connected.fileno, connected.shutdown
        self.close = connected.close
        self.has_buffered = False
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=name is None, server_hostname=name
        )
        self._lock = threading.Lock()
        self._unsent = memoryview(b"")

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent) or self._outgoing.pending > 0

    @property
    def protocol(self) -> str | None:
        """The ALPN protocol that both ends have agreed on."""
        return self._tls.selected_alpn_protocol()

    @property
    def peer_names(self) -> frozenset[str]:
        """The DNS names in the certificate of the other end."""
        certificate: Any = self._tls.getpeercert() or {}
        return frozenset(
            str(value) for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"
        )

    def handshake(self) -> Generator[int, None, None]:
        """Performs the TLS handshake; yields the events of `select.poll` that it waits for.

        Raises:
          OSError: if it fails, an `ssl.SSLError` among others; the other end is told why.
        """
        while True:
            try:
                self._tls.do_handshake()
                is_done = True
            except ssl.SSLWantReadError:
                is_done = False
            except ssl.SSLError:
                with suppress(OSError):
                    self._flush()
                raise
            while self.has_unsent:
                try:
                    self._flush()
                except BlockingIOError:
                    yield select.POLLOUT
            if is_done:
                break
            yield select.POLLIN
            with suppress(BlockingIOError):
                if not self._receive():
                    raise ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "it closed the connection")

    def receive_into(self, buffer: memoryview, take: Callable[[Sequence[int]], object]) -> int:
        del take  # no files come with TCP
        while not (n_bytes := self._decrypt(buffer)):
            if not self._receive():
                return 0
        self.has_buffered = n_bytes == len(buffer)
        return n_bytes

    def send(self, buffers: Buffers, descriptor: int | None = None) -> int:
        assert descriptor is None, "no files go over TCP"
        self._flush()
        n_bytes = 0
        for buffer in buffers:
            part = memoryview(buffer)[: _ENCRYPTED_BYTES - n_bytes]
            if part:
                with self._lock:
                    n_bytes += self._tls.write(part)
        with suppress(BlockingIOError):  # the next call sends it
            self._flush()
        return n_bytes

    def _decrypt(self, buffer: memoryview) -> int:
        """Decrypts received bytes, as far as their records are complete; returns their number."""
        n_bytes = 0
        with self._lock, suppress(ssl.SSLWantReadError):
            while n_bytes < len(buffer):
                n_more = self._tls.read(len(buffer) - n_bytes, buffer[n_bytes:])
                if not n_more:
                    break
                n_bytes += int(n_more)
        return n_bytes

    def _receive(self) -> bool:
        """Receives bytes to decrypt; False at the end. Raises BlockingIOError if there are none."""
        self.has_buffered = False
        received = self._socket.recv(_RECEIVED_BYTES)
        with self._lock:
            self._incoming.write(received)
        return bool(received)

    def _flush(self) -> None:
        """Sends the encrypted bytes. Raises BlockingIOError if the kernel does not accept all."""
        while self.has_unsent:
            if not self._unsent:
                with self._lock:
                    self._unsent = memoryview(self._outgoing.read())
            try:
                n_bytes = self._socket.send(self._unsent)
            except BlockingIOError:
                raise
            except OSError:  # nothing can be sent any more
                self._unsent = memoryview(b"")
                with self._lock:
                    self._outgoing.read()
                raise
            self._unsent = self._unsent[n_bytes:]

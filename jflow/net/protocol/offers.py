"""Offers of a data stream: each is valid once, for one session, for a few seconds; no I/O.

A server offers each caller that it has admitted a stream of its own for the messages of the session
(docs/decisions/transport.md#0044). The offer travels over the stream of the handshake, so only
the caller knows its nonce. The caller attaches the data stream by proving that, once and within
`OFFER_S`; the server proves the same, because another process may listen at the path by then.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Generic, TypeVar

OFFER_S = 10.0
"""How long an offer is valid, in seconds."""

OFFER_NONCE_BYTES = 32
PROOF_BYTES = 32

K = TypeVar("K")


@dataclass(frozen=True)
class DataOffer:
    """An offer of a data stream, which a caller may attach to its session.

    Attributes:
      path: of the Unix socket; "" if there is none.
      boot_id: of the machine that the path is on.
      nonce: 32 random bytes, used for nothing else.
      port: of the server, for data streams over TCP; 0 if it accepts none.
    """

    path: str
    boot_id: str
    nonce: bytes
    port: int = 0

    @property
    def caller_proof(self) -> bytes:
        """The proof that the caller sends first, u8[32]."""
        return hmac.digest(self.nonce, b"jflow data stream, caller", "sha256")

    @property
    def server_proof(self) -> bytes:
        """The proof with which the server replies, u8[32]."""
        return hmac.digest(self.nonce, b"jflow data stream, server", "sha256")

    def __repr__(self) -> str:
        places = [self.path, f"port {self.port}" if self.port else ""]
        return f"<jflow.net.protocol.DataOffer at {' and '.join(filter(None, places))}>"


class OpenOffers(Generic[K]):
    """The offers of a server that no caller has taken yet, each with a value of the server."""

    def __init__(self) -> None:
        self._open: dict[bytes, tuple[K, float]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, offer: DataOffer, value: K, now: float) -> None:
        """Adds an offer that is made at `now`, in seconds of any clock."""
        self._drop_expired(now)
        self._open[offer.caller_proof] = (value, now + OFFER_S)

    def pop(self, proof: bytes, now: float) -> K | None:
        """Removes the offer that a caller's proof is for; returns its value, None without one."""
        self._drop_expired(now)
        value, _ = self._open.pop(proof, (None, 0.0))
        return value

    def cancel(self, offer: DataOffer) -> None:
        """Cancels an offer; does nothing if it was taken or has expired."""
        self._open.pop(offer.caller_proof, None)

    def _drop_expired(self, now: float) -> None:
        # All are good for the same time, so the oldest expires first.
        while self._open:
            proof, (_, until) = next(iter(self._open.items()))
            if until > now:
                return
            del self._open[proof]

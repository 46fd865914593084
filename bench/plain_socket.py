"""What a plain TCP socket gives on a link: bytes there, bytes back, and a round trip.

`python -m bench.plain_socket HOST` serves one connection after another, and prints its port. Both
ends have the kernel's buffers and its congestion control; TCP_NODELAY as all that sends requests.
"""

from __future__ import annotations

import socket
import struct
import sys
from typing import Self

_REQUEST = struct.Struct("!QQ")
"""How many bytes follow, and how many are asked for."""


class PlainSocket:
    """A connection to a server of `python -m bench.plain_socket`, which ends with the context.

    Args:
      host, port: where it listens.
    """

    def __init__(self, host: str, port: int) -> None:
        self._socket = _without_delay(socket.create_connection((host, port)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def there(self, data: memoryview) -> None:
        """Sends bytes; returns when the other end has said that it has all of them."""
        self._socket.sendall(_REQUEST.pack(len(data), 1))
        self._socket.sendall(data)
        receive(self._socket, memoryview(bytearray(1)))

    def back(self, buffer: memoryview) -> None:
        """Asks for bytes, and receives them."""
        self._socket.sendall(_REQUEST.pack(0, len(buffer)))
        receive(self._socket, buffer)

    def round_trip(self) -> None:
        """Sends a small message, and waits for its answer."""
        self.back(memoryview(bytearray(1)))


def receive(connection: socket.socket, buffer: memoryview) -> bool:
    """Fills a buffer; whether the connection has not ended before."""
    while buffer:
        n_bytes = connection.recv_into(buffer)
        if not n_bytes:
            return False
        buffer = buffer[n_bytes:]
    return True


def serve(connection: socket.socket, spare: memoryview) -> None:
    """Takes and sends what is asked for, until the connection ends."""
    header = bytearray(_REQUEST.size)
    while receive(connection, memoryview(header)):
        n_taken, n_sent = _REQUEST.unpack(header)
        receive(connection, spare[:n_taken])
        connection.sendall(spare[:n_sent])


def _without_delay(connection: socket.socket) -> socket.socket:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def main(host: str) -> None:
    """Serves until the process is ended."""
    spare = memoryview(bytearray(b"x" * 100_000_000))  # touched, as the memory of an array is
    with socket.create_server((host, 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        while True:
            connection, _ = listening.accept()
            with _without_delay(connection):
                serve(connection, spare)


if __name__ == "__main__":
    main(sys.argv[1])

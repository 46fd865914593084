"""A client in a network of its own, where a relay has the port of a server on another machine.

`python -m tests.net.wire.elsewhere PORT SOCKET` passes what comes to 127.0.0.1:PORT on to a Unix
socket, and opens two sessions there: the target of the second one says that a tunnel is meant. It
prints for each "admitted", or the error.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import sys
import threading
from contextlib import suppress

from jflow.errors import OpError
from jflow.net.wire import connect

SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40


def main(port: int, path: str) -> None:
    """Opens the sessions."""
    with socket.socket() as one:
        loopback_is_up = struct.pack("16sh", b"lo", IFF_UP | IFF_RUNNING)
        fcntl.ioctl(one, SIOCSIFFLAGS, loopback_is_up)
    listening = socket.create_server(("127.0.0.1", port))
    threading.Thread(target=relay, args=(listening, path), daemon=True).start()
    for target in (f"127.0.0.1:{port}", f"127.0.0.1:{port}?at=127.0.0.1:{port}"):
        try:
            connect(target, 60.0).close()
        except OpError as error:
            sys.stdout.write(f"{error.message}\n")
        else:
            sys.stdout.write("admitted\n")


def relay(listening: socket.socket, path: str) -> None:
    """Passes on what comes."""
    while True:
        near, _ = listening.accept()
        far = socket.socket(socket.AF_UNIX)
        far.connect(path)
        for ends in ((near, far), (far, near)):
            threading.Thread(target=copy, args=ends, daemon=True).start()


def copy(source: socket.socket, sink: socket.socket) -> None:
    """Copies bytes until one end has closed."""
    with suppress(OSError):
        while found := source.recv(1 << 16):
            sink.sendall(found)
        sink.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])

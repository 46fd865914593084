"""The fault proxy: what passes, what does not, and that both ends see what they should see."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

import jflow as tf
from jflow.testing import FaultProxy, free_ports, no_leaks, wait_until

PATIENCE_S = 60


class Echo:
    """A server that sends back what it gets, in upper case, and keeps its connections."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.connections: list[socket.socket] = []
        self.ends: list[str] = []
        self.threads: list[threading.Thread] = [threading.Thread(target=self._accept)]
        self.threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            self.threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self.threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(1 << 16):
                    connection.sendall(data.upper())
                self.ends.append("end")
            except OSError:
                self.ends.append("reset")

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(PATIENCE_S)


@pytest.fixture
def echo() -> Iterator[Echo]:
    with no_leaks():
        echo = Echo()
        yield echo
        echo.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[FaultProxy]:
    with FaultProxy(echo.address) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[socket.socket]:
    with connected(proxy) as client:
        assert said(client, b"hello") == b"HELLO"
        yield client


def connected(proxy: FaultProxy) -> socket.socket:
    host, port = proxy.address.split(":")
    return socket.create_connection((host, int(port)), PATIENCE_S)


def said(client: socket.socket, data: bytes, n_bytes: int | None = None) -> bytes:
    """Sends data and returns the answer."""
    client.sendall(data)
    answer = b""
    while len(answer) < (len(data) if n_bytes is None else n_bytes):
        received = client.recv(1 << 16)
        assert received, "the connection was ended"
        answer += received
    return answer


def is_silent(client: socket.socket) -> bool:
    """Whether nothing comes for a moment."""
    client.settimeout(0.1)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(PATIENCE_S)
    return False


def test_bytes_and_ends_pass_in_both_directions(
    echo: Echo, proxy: FaultProxy, client: socket.socket
) -> None:
    data = bytes(range(97, 107)) * 200_000
    with ThreadPoolExecutor(1) as threads:
        sending = threads.submit(client.sendall, data)
        received = b""
        while len(received) < len(data):
            received += client.recv(1 << 16)
        sending.result()
    assert received == data.upper()
    wait_until(lambda: proxy.to_client.n_bytes == proxy.to_server.n_bytes == len(data) + 5)
    assert (proxy.n_connections, proxy.n_accepted) == (1, 1)
    client.shutdown(socket.SHUT_WR)
    assert client.recv(1) == b"", "the end came to the server, and the server's came back"
    wait_until(lambda: echo.ends == ["end"])
    wait_until(lambda: proxy.n_connections == 0)


def test_a_delay_is_added_once_in_each_direction_and_keeps_the_order(
    proxy: FaultProxy, client: socket.socket
) -> None:
    proxy.to_server.delay(0.1)
    proxy.to_client.delay(0.05)
    begun = time.monotonic()
    assert said(client, b"a") == b"A"
    assert time.monotonic() - begun >= 0.15
    for letter in b"bcdef":
        client.sendall(bytes([letter]))
        time.sleep(0.001)
    proxy.to_server.delay(0.0)
    assert said(client, b"g", 6) == b"BCDEFG"


def test_a_direction_that_is_held_goes_on_with_what_came(
    proxy: FaultProxy, client: socket.socket
) -> None:
    proxy.to_client.hold()
    client.sendall(b"one")
    wait_until(lambda: proxy.to_server.n_bytes == 8)
    assert is_silent(client)
    client.sendall(b"two")
    proxy.to_client.go_on()
    assert said(client, b"", 6) == b"ONETWO"


def test_bytes_are_dropped_as_many_as_asked(proxy: FaultProxy, client: socket.socket) -> None:
    proxy.to_server.drop(2)
    assert said(client, b"abcd", 2) == b"CD"
    assert proxy.to_server.n_dropped == 2
    assert said(client, b"ef") == b"EF"
    proxy.to_server.drop()
    client.sendall(b"lost")
    wait_until(lambda: proxy.to_server.n_dropped == 6)
    proxy.to_server.go_on()
    assert said(client, b"g") == b"G"


def test_a_black_hole_takes_connections_and_answers_nothing_until_it_is_healed(
    proxy: FaultProxy, client: socket.socket
) -> None:
    proxy.blackhole()
    with connected(proxy) as other:
        client.sendall(b"a")
        other.sendall(b"b")
        assert is_silent(client)
        assert is_silent(other)
        proxy.heal()
        assert client.recv(1) == b"A"
        assert other.recv(1) == b"B"


def test_a_cut_resets_both_sides_and_new_connections_can_be_made(
    echo: Echo, proxy: FaultProxy, client: socket.socket
) -> None:
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    wait_until(lambda: echo.ends == ["reset"])
    with connected(proxy) as other:
        assert said(other, b"again") == b"AGAIN"


def test_a_half_open_connection_is_known_to_one_side_only(
    echo: Echo, proxy: FaultProxy, client: socket.socket
) -> None:
    proxy.half_open("client")
    wait_until(lambda: echo.ends == ["reset"])
    client.sendall(b"hello again")
    assert is_silent(client)
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_the_server_can_be_the_one_that_does_not_know(
    echo: Echo, proxy: FaultProxy, client: socket.socket
) -> None:
    proxy.half_open("server")
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    time.sleep(0.05)
    assert echo.ends == []


def test_connections_are_refused_until_it_is_healed(proxy: FaultProxy) -> None:
    proxy.refuse()
    with pytest.raises(ConnectionResetError), connected(proxy) as client:
        client.recv(1)
    proxy.heal()
    with connected(proxy) as client:
        assert said(client, b"a") == b"A"


def test_a_server_that_is_not_there_resets_the_client() -> None:
    (port,) = free_ports(1)
    with (
        no_leaks(),
        FaultProxy(f"127.0.0.1:{port}") as proxy,
        pytest.raises(ConnectionResetError),
        connected(proxy) as client,  # which may see the reset already
    ):
        client.recv(1)


def test_closing_ends_everything_whatever_is_held(echo: Echo) -> None:
    proxy = FaultProxy(echo.address)
    client = connected(proxy)
    said(client, b"a")
    proxy.blackhole()
    client.sendall(b"held" * 100_000)
    late = connected(proxy)
    proxy.close()
    proxy.close()
    for one in (client, late):
        with one, suppress(ConnectionResetError):
            assert one.recv(1) == b""


def test_it_is_used_from_an_event_loop(echo: Echo) -> None:
    async def talk() -> bytes:
        with FaultProxy(echo.address) as proxy:
            host, port = proxy.address.split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            proxy.to_server.delay(0.01)
            writer.write(b"abc")
            answer = await reader.readexactly(3)
            writer.close()
            await writer.wait_closed()
            return answer

    assert asyncio.run(talk()) == b"ABC"


def test_a_session_outlives_a_cut_and_knows_a_black_hole() -> None:
    a = tf.constant(1.0) + 1
    with (
        no_leaks(10),
        tf.train.Server({"local": ["127.0.0.1:0"]}) as server,
        FaultProxy(server.target.removeprefix("grpc://")) as between,
        tf.Session(between.target) as session,
    ):
        assert session.run(a) == 2.0
        between.blackhole()
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(a, options=tf.RunOptions(timeout_in_ms=100))
        between.heal()
        assert session.run(a) == 2.0
        between.cut()
        wait_until(lambda: succeeds(session, a))
        assert between.n_accepted >= 2


def succeeds(session: tf.Session, a: tf.Tensor) -> bool:
    try:
        return bool(session.run(a) == 2.0)
    except tf.errors.UnavailableError:
        return False

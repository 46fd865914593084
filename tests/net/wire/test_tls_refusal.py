"""Asking why two ends cannot agree on encryption: how long that takes, whatever listens there."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from jflow.net.wire import tls_refusal
from jflow.net.wire.tls_refusal import look_for_refusal
from jflow.testing import PATIENCE_S


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        found.settimeout(PATIENCE_S)
        yield found


@pytest.fixture
def over() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def ask(listener: socket.socket, over: threading.Event) -> socket.socket:
    """Begins to ask the listener; returns its end of the connection."""
    found = look_for_refusal(None, f"127.0.0.1:{listener.getsockname()[1]}", "x", over)
    assert not found.done()
    connection = listener.accept()[0]
    connection.settimeout(PATIENCE_S)
    return connection


def read_to_end(connection: socket.socket) -> None:
    """Reads until the other end has closed the connection. Raises TimeoutError if it does not."""
    with suppress(ConnectionResetError):
        while connection.recv(1 << 16):
            pass


def send_slowly(connection: socket.socket) -> None:
    """Sends the parts of one TLS record that never ends, until the connection does."""
    with suppress(OSError):
        connection.sendall(b"\x16\x03\x03\x40\x00")
        while True:
            connection.sendall(b"\x02")
            threading.Event().wait(0.01)


def test_a_listener_that_sends_a_byte_now_and_then_does_not_keep_an_attempt(
    listener: socket.socket, over: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_refusal, "_ATTEMPT_S", 0.2)
    monkeypatch.setattr(tls_refusal, "_AGAIN_S", 0.01)
    with ask(listener, over) as connection:
        threading.Thread(target=send_slowly, args=(connection,), daemon=True).start()
        read_to_end(connection)
        listener.accept()[0].close()  # it tries again


@pytest.mark.parametrize("is_silent", [False, True])
def test_an_attempt_ends_when_its_answer_is_not_wanted_any_more(
    listener: socket.socket,
    over: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    is_silent: bool,
) -> None:
    monkeypatch.setattr(tls_refusal, "_ATTEMPT_S", 100 * PATIENCE_S)
    with ask(listener, over) as connection:
        if not is_silent:
            threading.Thread(target=send_slowly, args=(connection,), daemon=True).start()
        over.set()
        read_to_end(connection)


def test_a_connection_that_is_not_accepted_is_given_up_as_well(
    over: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_refusal, "_ATTEMPT_S", 100 * PATIENCE_S)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        address = full.getsockname()
        with socket.create_connection(address):  # the backlog holds it
            found = look_for_refusal(None, f"127.0.0.1:{address[1]}", "x", over)
            over.set()
            assert found.result(PATIENCE_S) is None

"""Servers that cannot be reached or started: names, addresses, tokens, and what the errors say."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import jflow as tf
from tests.task.server.test_deadlines import SHORT, USES, in_short, reset

NOWHERE = "no-such-host.invalid"


@pytest.mark.parametrize("use", USES)
def test_a_target_whose_name_does_not_resolve_fails_at_once(use: str) -> None:
    config = tf.ConfigProto(60_000)
    with in_short(), pytest.raises(tf.errors.UnavailableError) as caught:
        USES[use](f"grpc://{NOWHERE}:2222", config)
    message = str(caught.value)
    assert f"the host name '{NOWHERE}' does not resolve" in message
    assert f"'grpc://{NOWHERE}:2222'" in message, "the input that it came from"
    assert "correct the target" in message
    assert "\n" not in message


def test_a_peer_whose_name_does_not_resolve_fails_at_once_and_is_named() -> None:
    cluster = {"worker": ["127.0.0.1:0"], "ps": [f"{NOWHERE}:2222"]}
    with tf.device("/job:ps/task:0"):
        a = tf.constant(1.0) + 1
    with tf.train.Server(cluster, "worker", 0) as server, tf.Session(server.target) as session:
        with in_short(), pytest.raises(tf.errors.UnavailableError) as caught:
            session.run(a)
        message = str(caught.value)
        assert f"/job:ps/task:0 cannot be reached at '{NOWHERE}:2222'" in message
        assert f"the host name '{NOWHERE}' does not resolve" in message
        assert "cluster" in message
        assert caught.value.task == "/job:ps/task:0"
        with in_short():
            assert {d.name.split("/")[1] for d in session.list_devices()} == {"job:worker"}


def test_a_resolver_that_hangs_does_not_keep_a_call_beyond_its_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over = threading.Event()

    def hang(*_: object, **__: object) -> None:
        over.wait(60)
        raise OSError("at last")

    monkeypatch.setattr("jflow.net.wire.names.socket.getaddrinfo", hang)
    try:
        with in_short(), pytest.raises(tf.errors.DeadlineExceededError, match=r"50 ms") as caught:
            reset("grpc://slow.invalid:2222", SHORT)
        assert "resolving the host name of slow.invalid:2222" in str(caught.value)
        config = tf.ConfigProto(connect_timeout_in_ms=60)
        with in_short(), pytest.raises(tf.errors.UnavailableError, match=r"60 ms"):
            reset("grpc://slow.invalid:2222", config)
    finally:
        over.set()


def test_a_server_whose_own_name_does_not_resolve_says_so() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        tf.train.Server({"worker": [f"{NOWHERE}:0"]})
    message = str(caught.value)
    assert "/job:worker/task:0 cannot listen" in message
    assert f"'{NOWHERE}'" in message
    assert "does not resolve" in message


@pytest.mark.parametrize("insecure", ["", "1"])
def test_a_server_does_not_listen_at_the_address_of_another_machine(
    monkeypatch: pytest.MonkeyPatch, insecure: str
) -> None:
    monkeypatch.setenv("JFLOW_INSECURE", insecure)
    with pytest.raises(tf.errors.InvalidArgumentError, match="another machine") as caught:
        tf.train.Server({"worker": ["192.0.2.1:0"]})
    message = str(caught.value)
    assert "/job:worker/task:0 cannot listen at '192.0.2.1'" in message
    assert "JFLOW_INSECURE" not in message, "that would not help"


@pytest.fixture
def strangers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tf.train.Server]]:
    """A worker with this process's token, and a parameter server that has another one."""
    with ExitStack() as stack:

        def enter(server: tf.train.Server) -> tf.train.Server:
            return stack.enter_context(server)

        monkeypatch.setenv("JFLOW_TOKEN", "the token of the parameter server")
        ps = enter(tf.train.Server({"ps": ["127.0.0.1:0"]}))
        monkeypatch.delenv("JFLOW_TOKEN")
        worker = enter(tf.train.Server({"worker": ["127.0.0.1:0"]}))
        cluster = {**ps.cluster_spec.as_dict(), **worker.cluster_spec.as_dict()}
        worker.connect(cluster)
        yield [worker, ps]


def test_a_peer_with_another_token_is_named(strangers: list[tf.train.Server]) -> None:
    worker, ps = strangers
    address = ps.target.removeprefix("grpc://")
    with tf.device("/job:ps/task:0"):
        b = tf.constant(1.0) + 1
    with tf.Session(worker.target) as session:
        assert session.run(tf.constant(1.0)) == 1.0
        for call in (lambda: session.run(b), session.list_devices, lambda: reset_now(worker)):
            with in_short(), pytest.raises(tf.errors.UnauthenticatedError) as caught:
                call()
            assert f"/job:ps/task:0 at {address} does not have the token of its caller" in str(
                caught.value
            )
            assert "JFLOW_TOKEN" in str(caught.value)
            assert caught.value.task == "/job:ps/task:0"


def reset_now(server: tf.train.Server) -> None:
    tf.Session.reset(server.target)


def test_a_client_with_another_token_is_told_which_server_refused_it(
    strangers: list[tf.train.Server],
) -> None:
    _, ps = strangers
    address = ps.target.removeprefix("grpc://")
    with (
        tf.Session(ps.target) as session,
        pytest.raises(tf.errors.UnauthenticatedError) as caught,
    ):
        session.list_devices()
    assert f"the server at {address} does not have the token" in str(caught.value)

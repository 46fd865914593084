"""A client's end of a gRPC stream: an interrupt while it opens leaves nothing that cannot end."""

from __future__ import annotations

import signal
import threading
from typing import Any

import grpc._channel
import pytest

from jflow.base.cluster import Target
from jflow.net.wire.grpc_client import GrpcClientStream

PATIENCE_S = 10.0


def test_ctrl_c_before_a_call_has_its_thread_does_not_keep_the_channel_from_closing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = grpc._channel._run_channel_spin_thread
    closed = threading.Event()

    def interrupted(state: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        start(state)

    def give_up() -> None:
        if not closed.wait(PATIENCE_S):
            signal.raise_signal(signal.SIGALRM)

    def alarm(*_: Any) -> None:
        raise AssertionError("closing the channel does not end")

    monkeypatch.setattr(grpc._channel, "_run_channel_spin_thread", interrupted)
    former = signal.signal(signal.SIGALRM, alarm)
    watching = threading.Thread(target=give_up)
    watching.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            GrpcClientStream("any", Target("localhost:1"), iter(()), lambda _: True, lambda _: None)
    finally:
        closed.set()
        watching.join()
        signal.signal(signal.SIGALRM, former)

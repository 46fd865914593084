"""What servers log: sessions, resets, errors and slow steps, no values; and nothing by default."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import jflow as tf
from jflow.errors import FailedPreconditionError, UnavailableError
from jflow.launch import LocalCluster
from jflow.net.protocol import settings
from jflow.state.watch import StatusRequest, StepStatus
from jflow.task.server.slow_steps import SlowSteps
from jflow.testing import free_ports, start_servers, wait_until


def events(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    return [(one.msg, one.fields) for one in caplog.records if hasattr(one, "fields")]


def test_sessions_resets_and_errors_are_events_without_values(
    caplog: pytest.LogCaptureFixture,
) -> None:
    x = tf.Variable(tf.constant(4321.5), name="x")
    fed = tf.placeholder("float32", ())
    with caplog.at_level(logging.INFO, "jflow"), ExitStack() as stack:
        (server,) = start_servers(stack.enter_context, {"worker": 1})
        first = tf.Session(server.target)
        with pytest.raises(FailedPreconditionError):
            first.run(x + fed, {fed: 98765.25})
        tf.Session.reset(server.target, ["there\x1b"])
        with tf.Session(server.target) as second:
            second.run(x.initializer)
        first.close()

        def names() -> list[str]:
            return [name for name, _ in events(caplog)]

        wait_until(lambda: names().count("session_closed") == 2, "both sessions to be closed")
    told = dict(events(caplog))
    assert told["session_opened"] == {"session": 3}
    assert told["reset"] == {"containers": repr("there\x1b"), "n_sessions": 1}
    assert told["session_expired"] == {"session": 1, "reason": "reset"}
    assert told["call_failed"]["code"] == "FAILED_PRECONDITION"
    assert names()[0] == "server_started"
    assert names()[-1] == "server_stopped"
    assert "4321" not in caplog.text
    assert "98765" not in str(events(caplog))


def test_a_slow_step_is_logged_once_with_what_it_waits_for_and_when_it_has_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    steps: list[StepStatus] = []

    def listed(_: StatusRequest) -> tuple[int, tuple[StepStatus, ...]]:
        return len(steps), tuple(steps)

    slow = SlowSteps(listed, 10.0)
    with caplog.at_level(logging.INFO, "jflow"):
        steps[:] = [StepStatus("a", 9.0), StepStatus("b", 12.0, ("CPU:0",), ("to dequeue",))]
        slow.look()
        steps[:] = [StepStatus("a", 14.0)]
        slow.look()
        slow.look()
    assert events(caplog) == [
        ("slow_step", {"step": "b", "age_s": 12.0, "devices": "CPU:0", "waits": "to dequeue"}),
        ("slow_step_ended", {"step": "b", "at_least_s": 12.0}),
        ("slow_step", {"step": "a", "age_s": 14.0, "devices": "", "waits": "computes"}),
    ]


def test_a_reset_beside_a_dead_peer_prints_nothing_on_the_standard_error_of_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JFLOW_LOG", raising=False)
    with tf.device("/job:ps/task:0"):
        x = tf.Variable(1.0)
    config = tf.ConfigProto(connect_timeout_in_ms=200)
    with LocalCluster(ps=1, workers=1, logs=tmp_path) as cluster:
        with tf.Session(cluster.target()) as session:
            session.run(x.initializer)
            cluster.kill("ps")
            for _ in range(2):  # over the connection that broke, and without one
                with pytest.raises(UnavailableError):
                    tf.Session.reset(cluster.target(), [""], config=config)
            with pytest.raises(tf.errors.OpError):
                session.run(x)
        with tf.Session(cluster.target()) as session:
            assert session.run(tf.constant(1.0) + 1.0) == 2.0
    assert (tmp_path / "worker-0.log").read_text() == ""


def test_a_server_that_waits_for_a_dead_peer_warns_of_nothing_and_notes_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "NOTICE_AFTER_S", 0.05)
    (port,) = free_ports(1)
    config = tf.ConfigProto(connect_timeout_in_ms=500)
    with caplog.at_level(logging.INFO, "jflow"), ExitStack() as stack:
        (worker,) = start_servers(stack.enter_context, {"worker": 1})
        address = worker.target.removeprefix("grpc://")
        worker.connect({"ps": [f"127.0.0.1:{port}"], "worker": [address]})
        with pytest.raises(UnavailableError):
            tf.Session.reset(worker.target, [""], config=config)
    noted = {"silent": "/job:ps/task:0", "at": f"127.0.0.1:{port}"}
    assert ("task_silent", noted) in events(caplog)
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]

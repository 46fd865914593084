"""Users of a cluster: their sessions go by their names, and end with their tokens."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import jflow as tf
from jflow.cli.main import main
from jflow.errors import OpError, UnauthenticatedError
from jflow.net.wire.users import make_token, revoke_tokens, rotate_token
from jflow.testing import start_servers, wait_until
from tests.task.server.users import as_user

PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of users, which does not exist yet."""
    path = tmp_path / "users.json"
    monkeypatch.setenv("JFLOW_USERS_FILE", str(path))
    return path


@pytest.fixture
def target(users: Path) -> Iterator[str]:
    """A worker of a cluster with a parameter server."""
    with ExitStack() as stack:
        yield start_servers(stack.enter_context, {"ps": 1, "worker": 1})[1].target


def counter() -> tuple[tf.Variable, tf.Operation]:
    with tf.device(PS):
        v = tf.Variable(0.0, name="v")
    return v, v.assign_add(1.0)


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[list[str]]:
    assert main([*arguments]) == 0
    return [line.split() for line in capsys.readouterr().out.splitlines()[1:]]


@pytest.mark.parametrize("transport", ["auto", "unix", "tcp", "grpc"])
def test_a_session_goes_by_the_name_of_its_user_and_ends_with_the_token(
    users: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    transport: str,
) -> None:
    monkeypatch.setenv("JFLOW_TRANSPORT", transport)
    v, grow = counter()
    with caplog.at_level(logging.INFO, "jflow"), ExitStack() as stack:
        target = start_servers(stack.enter_context, {"ps": 1, "worker": 1})[1].target
        ann, bob = make_token(users, "ann"), make_token(users, "bob")
        with as_user(ann):
            of_ann = stack.enter_context(tf.Session(target))
            of_ann.run(v.initializer)
        with as_user(bob):
            of_bob = stack.enter_context(tf.Session(target))
            assert of_bob.run(grow) == 1.0
        assert [row[2] for row in rows(capsys, "ls", "sessions", target)] == ["ann", "bob"]
        opened = [one for one in caplog.records if one.msg == "session_opened"]
        assert [one.fields["user"] for one in opened] == ["ann", "bob"]  # type: ignore[attr-defined]

        revoke_tokens(users, "ann")

        def refusal() -> str:
            try:
                with as_user(ann):
                    of_ann.run(grow)
            except OpError as error:
                return error.message
            return ""

        wait_until(refusal, "the session of the user to end")
        assert f"the token {ann.serial} of the user 'ann'" in refusal()
        with as_user(ann), pytest.raises(UnauthenticatedError, match="may have been revoked"):
            tf.Session(target).run(grow)
        before = of_bob.run(v)
        assert of_bob.run(grow) == before + 1.0
        assert "token_refused" in [one.msg for one in caplog.records]


def test_a_rotated_token_opens_sessions_while_the_former_one_is_kept(
    users: Path, target: str
) -> None:
    v, grow = counter()
    former = make_token(users, "ann")
    later = rotate_token(users, "ann", keep_s=3600)
    for token_id in (former, later):
        with as_user(token_id), tf.Session(target) as session:
            session.run(v.initializer)
            assert session.run(grow) == 1.0
    rotate_token(users, "ann")
    for token_id in (former, later):
        with as_user(token_id), pytest.raises(UnauthenticatedError):
            tf.Session(target).run(grow)


def test_steps_on_other_tasks_go_by_the_name_of_their_user(
    users: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with tf.device(PS):
        queue = tf.FIFOQueue(1, ["float32"], [()], shared_name="q")
    taken = queue.dequeue()
    with as_user(make_token(users, "ann")), tf.Session(target) as session:
        waiting = session.run_async(taken)
        wait_until(
            lambda: [row[2] for row in rows(capsys, "ls", "steps", target)] == ["ann"],
            "the step to be listed on the task where it waits",
        )
        session.run(queue.enqueue(3.0))
        assert waiting.result(60) == 3.0


def test_a_task_of_a_cluster_needs_the_token_of_the_cluster(users: Path) -> None:
    """A server with the token of a user is no task of the cluster, though it may call one."""
    v, _ = counter()
    with ExitStack() as stack:
        (own, *_) = start_servers(stack.enter_context, {"ps": 1, "worker": 1})
        ann = make_token(users, "ann")
        ps = own.target.removeprefix("grpc://")
        with as_user(ann):
            guest = stack.enter_context(
                tf.train.Server({"ps": [ps], "guest": ["127.0.0.1:0"]}, "guest", 0)
            )
            session = stack.enter_context(tf.Session(guest.target))
            with pytest.raises(UnauthenticatedError, match="need the token of the cluster"):
                session.run(v.initializer)


def test_a_malformed_file_of_users_is_an_error_at_the_start(users: Path) -> None:
    users.write_text("{")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"file of users .* is malformed"):
        tf.train.Server.create_local_server()

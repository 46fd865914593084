"""Roles of users: what each may do with containers, files and servers, through real sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import jflow as tf
from jflow.base.roles import AccessRole
from jflow.cli.main import main
from jflow.errors import AbortedError, OpError, PermissionDeniedError
from jflow.net.protocol.tokens import TokenId
from jflow.net.wire.users import make_token, revoke_tokens, set_role
from jflow.testing import start_servers, wait_until
from tests.task.server.users import as_user

PS = "/job:ps/task:0"
CONTAINERS = {"ann": "ann/run", "bob": "bob", "eve": "eve", "shared": "", "nearly": "ann-2/run"}
"""A container of each user, the default one, and one that begins with the name of a user only."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("roles")


@pytest.fixture(scope="module")
def tokens(folder: Path) -> dict[str, TokenId]:
    roles = {
        "ann": AccessRole.USE,
        "bob": AccessRole.USE,
        "eve": AccessRole.READ,
        "olga": AccessRole.OPERATE,
    }
    return {user: make_token(folder / "users.json", user, role) for user, role in roles.items()}


@pytest.fixture(scope="module")
def target(folder: Path, tokens: dict[str, TokenId]) -> Iterator[str]:
    """A worker of a cluster with a parameter server, which has a variable in each container."""
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("JFLOW_USERS_FILE", str(folder / "users.json"))
        target = start_servers(stack.enter_context, {"ps": 1, "worker": 1})[1].target
        for container in CONTAINERS.values():
            with tf.Graph().as_default(), tf.Session(target) as session:
                session.run(variable(container).initializer)
        yield target


def variable(container: str) -> tf.Variable:
    with tf.device(PS), tf.container(container):
        return tf.Variable(1.0, name="v")


def caller(tokens: dict[str, TokenId], user: str) -> Any:
    """Context manager in which this process is a user, or has the token of the cluster."""
    return as_user(tokens[user]) if user in tokens else nullcontext()


OWN_AND_SHARED = {
    "ann": {"ann", "shared", "nearly"},
    "bob": {"bob", "shared", "nearly"},
    "eve": {"eve", "shared", "nearly"},
    "olga": {*CONTAINERS},
    "cluster": {*CONTAINERS},
}
MAY_WRITE = {"ann", "bob", "olga", "cluster"}


@pytest.mark.parametrize("user", OWN_AND_SHARED)
def test_steps_use_the_containers_that_role_and_owner_allow(
    target: str, tokens: dict[str, TokenId], folder: Path, user: str
) -> None:
    """Each container is read, written, saved and restored, and has a queue, by each user."""
    may_write = user in MAY_WRITE
    for owner, container in CONTAINERS.items():
        is_own_or_shared = owner in OWN_AND_SHARED[user]
        path = folder / "files" / f"{owner} by {user}"
        with tf.Graph().as_default(), caller(tokens, user), tf.Session(target) as session:
            for action, act in actions(session, container, path).items():
                refusal = refused(act)
                is_expected = is_own_or_shared and (may_write or action == "read")
                assert (refusal is None) == is_expected, (action, container, refusal)
                if refusal is not None:
                    assert f"the user {user!r} has the role" in refusal
                    assert f"`jflow token role {user} " in refusal
                    if not is_own_or_shared and action not in ("save", "restore"):
                        assert f"belongs to the user {owner!r}" in refusal


def actions(session: tf.Session, container: str, path: Path) -> dict[str, Callable[[], object]]:
    """What a client may want to do with a container, the reading first."""
    v = variable(container)
    with tf.device(PS), tf.container(container):
        queue = tf.FIFOQueue(9, ["float32"], [()], shared_name="q")
    return {
        "read": lambda: session.run(v + 1.0),
        "write": lambda: session.run(v.assign_add(1.0)),
        "enqueue": lambda: session.run(queue.enqueue(1.0)),
        "save": lambda: tf.checkpoint.save(path, [v]),
        "restore": lambda: tf.checkpoint.restore(path, [v]),
    }


def refused(act: Any) -> str | None:
    """What is said when it is not permitted; None if it is done."""
    try:
        act()
    except PermissionDeniedError as error:
        return error.message
    return None


@pytest.mark.parametrize(
    ("user", "path", "is_allowed"),
    [
        ("ann", "ann/v", True),
        ("ann", "any/v", True),
        ("ann", "bob/v", False),
        ("ann", "BOB/v", False),
        ("ann", "ann/bob/v", False),
        ("ann", "any/../bob/v", False),
        ("ann", "any/../v", False),
        ("ann", "bob", False),
        ("ann", "bobby/v", True),
        ("olga", "bob/v", True),
    ],
)
def test_checkpoints_are_in_directories_of_the_user_or_shared_ones(
    target: str,
    tokens: dict[str, TokenId],
    folder: Path,
    user: str,
    path: str,
    is_allowed: bool,
) -> None:
    v = variable("")
    for prefix in (f"{folder}/{path}", f"file://{folder}/{path}"):
        with as_user(tokens[user]), tf.Session(target):
            refusal = refused(partial(tf.checkpoint.save, prefix, [v]))
            assert (refusal is None) == is_allowed


@pytest.mark.parametrize("user", ["ann", "eve"])
def test_what_concerns_all_users_needs_the_role_operate(
    target: str, tokens: dict[str, TokenId], user: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with as_user(tokens[user]):
        with pytest.raises(PermissionDeniedError, match="resetting containers needs the role 'op"):
            tf.Session.reset(target, ["ann/run"])
        refusal = pytest.raises(
            PermissionDeniedError, match="claiming 'x' needs the role 'operate'"
        )
        with tf.connect(target) as connection, refusal:
            connection.claim("x")
        assert main(["stop", target]) != 0
        assert "stopping tasks needs the role 'operate'" in capsys.readouterr().err
        assert main(["ls", "containers", target]) == 0
        assert "ann/run" in capsys.readouterr().out
    with as_user(tokens["olga"]):
        tf.Session.reset(target, ["no such"])


def test_a_role_that_changes_counts_for_open_sessions(
    target: str, tokens: dict[str, TokenId], folder: Path
) -> None:
    users = folder / "users.json"
    tokens = {**tokens, "kim": make_token(users, "kim", AccessRole.READ)}
    v = variable("")
    grow = v.assign_add(1.0)
    with as_user(tokens["kim"]), tf.Session(target) as session:
        assert refused(lambda: session.run(grow)) is not None
        set_role(users, "kim", AccessRole.USE)
        wait_until(lambda: refused(lambda: session.run(grow)) is None, "the role to be higher")
        set_role(users, "kim", AccessRole.READ)
        error = error_in_time(lambda: session.run(grow))
        # The stream has ended, or the session was opened again: the reason is the same.
        assert "the user 'kim' has the role 'read', and" in error.message
    with as_user(tokens["kim"]), tf.Session(target) as session:
        assert refused(lambda: session.run(grow)) is not None
        assert session.run(v) >= 1.0


def test_a_user_that_is_added_gets_what_is_named_so_from_open_sessions(
    target: str, tokens: dict[str, TokenId], folder: Path
) -> None:
    users = folder / "users.json"
    other, of_zoe = variable(""), variable("zoe/run")
    with ExitStack() as stack:
        stack.enter_context(as_user(tokens["ann"]))
        session, idle = (stack.enter_context(tf.Session(target)) for _ in range(2))
        session.run(of_zoe.initializer)
        assert idle.run(other) >= 1.0
        queue = tf.FIFOQueue(1, ["float32"], [()], shared_name="never filled")
        with tf.container("zoe/run"):
            waiting = session.run_async([queue.dequeue(), of_zoe])
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("JFLOW_TOKEN")
            zoe = make_token(users, "zoe", AccessRole.USE)
        error = error_in_time(lambda: session.run(of_zoe))
        assert isinstance(error, AbortedError)
        assert "belongs to the user 'zoe'" in error.message
        with pytest.raises(OpError):
            waiting.result(60)
        assert idle.run(other) >= 1.0
    revoke_tokens(users, "zoe")
    with as_user(tokens["ann"]), tf.Session(target) as session:
        assert "belongs to the user 'zoe'" in (refused(lambda: session.run(of_zoe)) or "")
    assert make_token(users, "zoe").user == zoe.user


def error_in_time(act: Callable[[], object]) -> OpError:
    """The error of what is done again and again until it fails."""
    errors = []

    def fails() -> bool:
        try:
            act()
        except OpError as error:
            errors.append(error)
        return bool(errors)

    wait_until(fails, "the session to end")
    return errors[0]

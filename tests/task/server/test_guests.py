"""Guests of a shared cluster reach what belongs to others by no way around its name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import jflow as tf
from jflow.base.deadline import FOREVER
from jflow.base.roles import AccessRole
from jflow.errors import PermissionDeniedError
from jflow.net.protocol import MasterClient
from jflow.net.protocol.tokens import TokenId
from jflow.net.wire.users import make_token
from jflow.state.checkpoint_files import open_checkpoint
from jflow.state.core import ClusterState
from jflow.state.effects import Effect
from jflow.state.fencing import CLAIMS
from jflow.state.journal import RECORDED
from jflow.testing import start_servers
from tests.task.server.users import as_user

PS = "/job:ps/task:0"
ROLES = {
    "ann": AccessRole.USE,
    "bob": AccessRole.USE,
    "eve": AccessRole.READ,
    "olga": AccessRole.OPERATE,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("guests")


@pytest.fixture(scope="module")
def tokens(folder: Path) -> dict[str, TokenId]:
    return {user: make_token(folder / "users.json", user, role) for user, role in ROLES.items()}


@pytest.fixture(scope="module")
def target(folder: Path, tokens: dict[str, TokenId]) -> Iterator[str]:
    """A worker of a cluster with a parameter server."""
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("JFLOW_USERS_FILE", str(folder / "users.json"))
        yield start_servers(stack.enter_context, {"ps": 1, "worker": 1})[1].target


class Counter:
    """A user's session with a variable in a container of theirs, and a step that counts."""

    def __init__(self, session: tf.Session, user: str) -> None:
        self.session = session
        with session.graph.as_default(), tf.device(PS), tf.container(user):
            self.variable = tf.Variable(100.0 * ord(user[0]), name="v")
            self._count = self.variable.assign_add(1.0)
        session.run(self.variable.initializer)
        session.run(self._count)

    @property
    def backend(self) -> Any:
        """What has the connection."""
        return self.session._backend

    def count(self, client: str, sequence: int, attempt: int = 1, epoch: int = 0) -> float:
        """Runs an attempt of a step that is applied once, of any client; returns the count."""
        return float(self.run(effect=Effect(client, epoch, sequence, attempt)))

    def run(self, **options: Any) -> Any:
        """Runs the step with these options of `MasterClient.run_step`."""
        connection: MasterClient = self.backend.connection(FOREVER)
        (value,) = connection.run_step(max(self.backend._steps), [], FOREVER, **options)
        return value

    def save(self, path: Path) -> None:
        with self.session.graph.as_default(), self.session.as_default():
            tf.checkpoint.save(path, {"v": self.variable})

    def restore(self, path: Path) -> None:
        with self.session.graph.as_default(), self.session.as_default():
            tf.checkpoint.restore(path, {"v": self.variable})


@contextmanager
def counters(target: str, tokens: dict[str, TokenId], *users: str) -> Iterator[list[Counter]]:
    """Context manager with a `Counter` of each user, on one master."""
    with ExitStack() as stack:
        found = []
        for user in users:
            with as_user(tokens[user]):
                session = stack.enter_context(tf.Session(target, graph=tf.Graph()))
                found.append(Counter(session, user))
        yield found


@pytest.mark.parametrize(("user", "is_allowed"), [("ann", False), ("eve", False), ("bob", True)])
def test_a_step_reads_a_checkpoint_only_if_its_path_and_the_role_allow_it(
    target: str, tokens: dict[str, TokenId], folder: Path, user: str, *, is_allowed: bool
) -> None:
    path = folder / "files" / "bob" / "model"
    with counters(target, tokens, "bob") as (bob,):
        bob.save(path)
    with as_user(tokens[user]), tf.Graph().as_default() as graph, tf.Session(target) as session:
        with tf.device(PS), tf.container(user):
            own = tf.Variable(0.0, name="own")
        tf.train.init_from_checkpoint(str(path), {"v": own})
        (read,) = (op for op in graph.get_operations() if "checkpoint_initializer" in op.name)
        for fetch in (read.outputs[0], own.initializer):
            if is_allowed:
                session.run(fetch)
                continue
            with pytest.raises(PermissionDeniedError, match=f"the user '{user}' has the role"):
                session.run(fetch)


def test_users_do_not_repeat_or_end_the_steps_of_each_other(
    target: str, tokens: dict[str, TokenId]
) -> None:
    """The owner of a session, by which its steps are numbered, and names of runs are no secrets."""
    with counters(target, tokens, "bob", "ann") as (bob, ann):
        for client in (bob.backend.owner, "run"):
            before = bob.count(client, 100)
            assert ann.count(client, 100, attempt=2) != before
            with pytest.raises(PermissionDeniedError, match="under a claim needs the role 'op"):
                ann.count(client, 0, epoch=2**62)
            assert bob.count(client, 100, attempt=2) == before
            assert bob.count(client, 101) == before + 1


def test_checkpoints_have_the_applied_steps_of_the_user_that_saves_and_restores(
    target: str, tokens: dict[str, TokenId], folder: Path
) -> None:
    path = folder / "files" / "steps of ann"
    with counters(target, tokens, "ann", "bob") as (ann, bob):
        own = ann.count("saved run", 1)
        ann.save(path)
        others = bob.count("saved run", 1)
        ann.save(folder / "files" / "later")
        with open_checkpoint(folder / "files" / "later") as checkpoint:
            (state,) = checkpoint.state_keys()
            saved: Any = checkpoint.state(state)
            names = {window.client for window in saved.ledger.saved.windows}
        assert "@ann/saved run" in names
        assert all(name.startswith("@ann/") for name in names)
        ann.restore(path)
        assert bob.count("saved run", 1, attempt=2) == others, "it was applied again"
        assert ann.count("saved run", 1, attempt=2) == own
        assert ann.count("saved run", 2) == own + 1


def test_a_checkpoint_has_no_claims_of_its_client(
    target: str, tokens: dict[str, TokenId], folder: Path
) -> None:
    """Or a save and a restore would fence off what others have claimed."""
    path = folder / "files" / "claims"
    with counters(target, tokens, "ann") as (ann,):
        call = ann.backend.call_state
        claims = {CLAIMS: f'{{"run": {2**63 - 1}}}'}

        def save(method: Any, *args: Any, **options: Any) -> Any:
            assert method is ClusterState.save
            return call(method, *args[:-1], claims, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ann.backend, "call_state", save)
            ann.save(path)
        ann.restore(path)
    with as_user(tokens["olga"]), tf.connect(target) as connection:
        assert connection.claim("run") < 2**62


@pytest.mark.parametrize("user", ["ann", "eve"])
def test_recording_needs_the_role_operate(
    target: str, tokens: dict[str, TokenId], user: str
) -> None:
    with counters(target, tokens, "olga") as (olga,):
        olga.run(step_id=RECORDED)
    with as_user(tokens[user]), tf.Graph().as_default(), tf.Session(target) as session:
        with tf.device(PS):
            session.run(tf.constant(1.0) + tf.numpy.ones(()))
        backend: Any = session._backend
        with pytest.raises(PermissionDeniedError, match="recording steps needs the role 'operate'"):
            backend.connection(FOREVER).run_step(max(backend._steps), [], FOREVER, step_id=RECORDED)

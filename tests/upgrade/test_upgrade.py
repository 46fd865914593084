"""Tasks and clients of the release before and of this code, together; and a rolling upgrade.

`make upgrade` runs it; so does `make check-long`. It needs the history of the repository.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from jflow.base.handles import Closing
from jflow.base.roles import AccessRole
from jflow.base.versions import OLDEST_VERSION, VERSION
from jflow.net.wire.transports import load_secret
from jflow.net.wire.users import make_token
from jflow.testing import wait_until
from tests.upgrade.mixed import HERE, MixedCluster, Program
from tests.upgrade.releases import ROOT, code_of

pytestmark = pytest.mark.long

PS, WORKER = ("ps", 0), ("worker", 0)
FOUND = {
    "total": 18.0,
    "many": 18.0,
    "taken": [18.0, 19.0],
    "added": [4.0, 20.0],
    "restored": [4.0, 20.0],
    "counted": [2.0, 4.0, 6.0],
}


def code(version: int) -> Path:
    return ROOT if version == VERSION else code_of(version)


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """The environment of a user with the role `use`, which is in the file of users."""
    path = tmp_path_factory.mktemp("users") / "users.json"
    path.parent.chmod(0o700)
    token_id = make_token(path, "ann", AccessRole.USE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JFLOW_USERS_FILE", str(path))
        yield {"JFLOW_TOKEN": load_secret().token_of(token_id)}


@pytest.fixture(scope="module")
def mixed(ann: Mapping[str, str]) -> Iterator[MixedCluster]:
    """A cluster whose worker is of this version and whose parameter server of the one before."""
    del ann  # servers read the file of users
    with MixedCluster(code(OLDEST_VERSION), 1, 1) as cluster:
        cluster.replace(WORKER, ROOT)
        yield cluster


@pytest.mark.parametrize("master", [PS, WORKER], ids=["old master", "new master"])
@pytest.mark.parametrize("version", [OLDEST_VERSION, VERSION])
def test_all_kinds_of_steps_on_tasks_of_both_versions(
    mixed: MixedCluster, version: int, master: tuple[str, int], tmp_path: Path
) -> None:
    target = mixed.target(master)
    (found,) = mixed.run(code(version), str(HERE / "steps.py"), target, str(tmp_path))
    assert {name: found[name] for name in FOUND} == FOUND
    assert found["moved"] >= 2, "a variable has moved from one version to the other, and back"


@pytest.mark.parametrize("master", [PS, WORKER], ids=["old master", "new master"])
@pytest.mark.parametrize("version", [OLDEST_VERSION, VERSION])
def test_people_see_all_tasks(mixed: MixedCluster, version: int, master: tuple[str, int]) -> None:
    command = ["-m", "jflow", "ls", "devices", mixed.target(master), "--json"]
    with Program(code(version), *command) as program:
        text, _ = program.process.communicate()
        seen = json.loads(text)
    assert {one["name"]: one["state"] for one in seen["tasks"]} == {
        "/job:ps/task:0": "up",
        "/job:worker/task:0": "up",
    }


REFUSED = """
import sys, json, jflow as tf
try:
    with tf.Session(sys.argv[1]) as session:
        session.list_devices()
except tf.errors.OpError as error:
    print(json.dumps({"refused": error.message}))
"""


def test_versions_that_are_not_adjacent_refuse_each_other_by_name(mixed: MixedCluster) -> None:
    older = OLDEST_VERSION - 1
    with MixedCluster(code_of(older), 0, 1) as other:
        for cluster, version in ((other, VERSION), (mixed, older)):
            (said,) = cluster.run(code(version), "-c", REFUSED, cluster.target(WORKER))
            assert f"version {older}" in said["refused"]
            assert f"{VERSION}" in said["refused"]
            assert "jflow on both" in said["refused"]


N_CLOSURES = 40
"""Closures of a round."""

LATER = 3
"""Rounds that have to end after a task was replaced, before the next one is."""


SAVED = """
import sys, json, numpy as np, jflow as tf
with tf.container("ann/run"), tf.device("/job:ps/task:0"):
    x = tf.Variable(np.float32(3), name="x")
said = {}
try:
    with tf.Session(sys.argv[1]) as session:
        session.run(x.initializer)
        said["value"] = float(session.run(x))
        tf.train.Saver([x]).save(session, sys.argv[2])
except tf.errors.OpError as error:
    said["refused"] = error.message
print(json.dumps(said))
"""


def test_a_user_is_refused_by_name_what_the_version_before_cannot_do_for_one(
    mixed: MixedCluster, ann: Mapping[str, str], tmp_path: Path
) -> None:
    def said_through(master: tuple[str, int]) -> dict[str, Any]:
        command = ["-c", SAVED, mixed.target(master), str(tmp_path / "model")]
        (said,) = mixed.run(ROOT, *command, environment=ann)
        return said

    assert "which has no tokens of users" in said_through(PS)["refused"]
    said = said_through(WORKER)
    assert said["value"] == 3.0
    # It would save the steps of others with it.
    assert "'clients' of the call 'saves.take' came with version 12" in said["refused"]


class Training(Closing):
    """The program of `training.py`, which trains until the context ends.

    Attributes:
      start: what the counters of the parameter servers were at its start.
      rounds: what it has said after each round.
    """

    def __init__(self, code: Path, cluster: MixedCluster, checkpoint: Path) -> None:
        settings = {
            "cluster": cluster.spec,
            "checkpoint": str(checkpoint),
            "n_closures": N_CLOSURES,
        }
        self._program = Program(code, str(HERE / "training.py"), json.dumps(settings))
        self._said = self._program.lines()
        self.start: list[int] = next(self._said)["started"]
        self.rounds: list[dict[str, Any]] = []
        self._is_over = False
        self._thread = Thread(target=self._train)
        self._thread.start()

    def goes_on(self) -> None:
        """Waits until some more rounds have begun and ended."""
        enough = len(self.rounds) + LATER + 1
        wait_until(
            lambda: len(self.rounds) >= enough or not self._thread.is_alive(),
            "rounds to end",
            progress=lambda: len(self.rounds),
        )
        assert len(self.rounds) >= enough, "the training has ended"

    def _train(self) -> None:
        while not self._is_over:
            self._program.say("on")
            if (said := next(self._said, None)) is None:
                return
            self.rounds.append(said)

    def _leave(self, failed: bool) -> None:
        self._is_over = True
        if failed:
            self._program.close()
        self._thread.join()
        self._program.close()


@pytest.mark.parametrize("first", ["tasks", "program"])
def test_a_training_goes_on_while_all_tasks_are_upgraded(first: str, tmp_path: Path) -> None:
    """The tasks one after the other, then the program; or the program first."""
    before, now = code(OLDEST_VERSION), ROOT
    with MixedCluster(before, 2, 2) as cluster:
        with Training(now if first == "program" else before, cluster, tmp_path / "model") as one:
            one.goes_on()
            began = len(one.rounds)
            for worker in range(2):
                cluster.replace(("worker", worker), now)
                one.goes_on()
            n_of_workers = len(one.rounds)
            for ps in range(2):
                cluster.replace(("ps", ps), now)
                one.goes_on()
            ended = len(one.rounds)
        # The same program, of this version, goes on where the other one was.
        with Training(now, cluster, tmp_path / "model") as other:
            other.goes_on()
    note(first, one.rounds[began:ended])
    assert other.start == one.rounds[-1]["after"]
    assert not any(done["n_restored"] for done in one.rounds[:n_of_workers])
    check_counts(one.rounds)
    check_counts(other.rounds)
    losses = [done["loss"] for done in one.rounds[began:ended]]
    assert losses[-1] < 0.1 * losses[0], "it goes on learning"


def check_counts(rounds: list[dict[str, Any]]) -> None:
    """Checks that no closure is lost or doubled, but those since a save that was restored."""
    for done, following in itertools.pairwise(rounds):
        assert done["after"] == following["before"]
    for done in rounds:
        counted = [
            after - before for before, after in zip(done["before"], done["after"], strict=True)
        ]
        if done["n_restored"]:
            assert all(0 <= one <= N_CLOSURES for one in counted), done
        else:
            assert counted == [N_CLOSURES] * len(counted), done


def note(first: str, rounds: list[dict[str, Any]]) -> None:
    """Keeps the figures of an upgrade, if JFLOW_FIGURES names a file for them."""
    if path := os.environ.get("JFLOW_FIGURES"):
        with Path(path).open("a") as file:
            file.writelines(json.dumps({"first": first, **one}) + "\n" for one in rounds)

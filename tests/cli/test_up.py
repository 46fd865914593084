"""`jflow up`: says where its tasks are, is found by other commands, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

import jflow as tf
from jflow.base.cluster import ClusterSpec, Target, Task
from jflow.cli.main import main
from jflow.cli.up import Foreground
from jflow.net.wire import running_ups as running_ups_room
from jflow.net.wire.running_ups import announced, running_ups
from jflow.task.server.stuck import STUCK_EXIT_CODE
from jflow.testing import ProgramProcess, wait_until

READY = re.compile(r"(/job:\w+/task:\d) is ready at (grpc://127\.0\.0\.1:\d+)")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory without a `jflow up`, and with a token of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TF_CONFIG", raising=False)
    return tmp_path


def ready(up: ProgramProcess) -> tuple[str, str]:
    """The next task that is ready, and its target."""
    found = READY.fullmatch(up.read_line())
    assert found is not None
    return found[1], found[2]


def status(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    """The tasks of the cluster that no argument names."""
    capsys.readouterr()
    assert main(["status", "--json", "--timeout", "30"]) == 0
    return {task["name"]: task for task in json.loads(capsys.readouterr().out)["tasks"]}


def test_a_cluster_is_watched_restarted_and_ended(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["-m", "jflow", "up", "--ps", "1", "--workers", "1", "--restart", "--logs"]
    with ProgramProcess([*command, str(folder / "logs")]) as up:
        targets = dict([ready(up), ready(up)])
        assert {*targets} == {"/job:ps/task:0", "/job:worker/task:0"}
        wait_until(lambda: len(running_ups()) == 1, "the cluster to be announced")
        before = status(capsys)
        assert {name: f"grpc://{task['address']}" for name, task in before.items()} == targets
        assert {path.name for path in (folder / "logs").iterdir()} == {"ps-0.log", "worker-0.log"}
        x = tf.constant(20.0) + 1.0
        with tf.Session(targets["/job:worker/task:0"]) as session:
            assert session.run(x) == 21.0

        os.kill(before["/job:ps/task:0"]["pid"], signal.SIGKILL)
        assert ready(up) == ("/job:ps/task:0", targets["/job:ps/task:0"])
        after = status(capsys)
        assert after["/job:ps/task:0"]["incarnation"] != before["/job:ps/task:0"]["incarnation"]

        children = psutil.Process(up.pid).children(recursive=True)
        assert len(children) == 5, "two tasks, their validators, and what they are forked from"
        up.terminate()
        assert up.wait() == 0
    # A validator notices the end of its task by itself.
    wait_until(lambda: not any(child.is_running() for child in children), "all have ended")
    assert running_ups() == []


class Ending:
    """A cluster of one task, whose process ends with one code after the other."""

    tasks = (Task("worker", 0),)
    cluster_spec = ClusterSpec({"worker": ["127.0.0.1:2222"]})

    def __init__(self, *codes: int) -> None:
        self._codes = [*codes]
        self.n_restarted = 0

    def exit_code(self, *_: object) -> int:
        return self._codes[0]

    def restart(self, *_: object) -> None:
        self.n_restarted += 1
        del self._codes[0]


@pytest.mark.parametrize(("code", "n_restarted"), [(STUCK_EXIT_CODE, 1), (1, 0)])
def test_a_task_that_ended_as_it_was_stuck_is_started_again_without_the_option(
    code: int, n_restarted: int, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster: Any = Ending(code, 0)
    assert Foreground(cluster, restarts=False).run_cluster() == 1 - n_restarted
    assert cluster.n_restarted == n_restarted
    said = f"/job:worker/task:0 ended with exit code {code}"
    assert said in capsys.readouterr().err


def test_a_server_of_another_cluster_is_not_stopped(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ProgramProcess(["-m", "jflow", "up", "--ps", "0", "--workers", "1"]) as up:
        _, target = ready(up)
        wait_until(lambda: len(running_ups()) == 1, "the cluster to be announced")
        (announcement,) = (folder / ".jflow" / "up").rglob("*.json")
        named = Target.parse(running_ups()[0].targets[0])
        assert named.cluster
        assert str(named.task) == "/job:worker/task:0"
        written = announcement.read_text()
        # As after the port has passed to a server of another cluster.
        announcement.write_text(written.replace(named.cluster, "0" * len(named.cluster)))
        assert main(["stop", "--timeout", "30"]) != 0
        assert "cluster" in capsys.readouterr().err
        announcement.write_text(written)
        assert [*status(capsys)] == ["/job:worker/task:0"], f"{target} still serves"


@pytest.mark.long
def test_tasks_that_are_told_to_stop_end_the_command(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ProgramProcess(["-m", "jflow", "up", "--ps", "0", "--workers", "1"]) as up:
        ready(up)
        wait_until(lambda: len(running_ups()) == 1, "the cluster to be announced")
        assert main(["stop", "--timeout", "30"]) == 0
        assert capsys.readouterr().out == "/job:worker/task:0 stops\n"
        assert up.read_line() == "/job:worker/task:0 has stopped"
        assert up.wait() == 0


@pytest.mark.long
def test_tasks_end_with_a_command_that_is_killed(folder: Path) -> None:
    with ProgramProcess(["-m", "jflow", "up", "--ps", "0", "--workers", "1"]) as up:
        ready(up)
        children = psutil.Process(up.pid).children(recursive=True)
        up.kill()
    wait_until(lambda: not any(child.is_running() for child in children), "the tasks to end")
    assert running_ups() == [], "what it left behind is not believed"


def test_a_file_of_a_command_that_has_ended_is_removed(folder: Path) -> None:
    with announced(["grpc://127.0.0.1:1"]):
        (up,) = running_ups()
        assert (up.pid, up.targets) == (os.getpid(), ("grpc://127.0.0.1:1",))
        (own,) = (folder / ".jflow" / "up").rglob("*.json")
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()
        stale = own.with_name(f"{ended.pid}.json")
        stale.write_text(own.read_text())
        (own.with_name("1.json")).write_text("{")
        assert [one.pid for one in running_ups()] == [os.getpid()]
        assert not stale.exists()
    assert running_ups() == []


def test_a_cluster_of_another_machine_is_neither_found_nor_removed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with announced(["grpc://127.0.0.1:1"]):
        (theirs,) = (folder / ".jflow" / "up").rglob("*.json")
        for where, name in ((running_ups_room, "machine_id"), (running_ups_room, "_process_ids")):
            with monkeypatch.context() as elsewhere:
                elsewhere.setattr(where, name, lambda: "another")
                assert running_ups() == []
                with announced(["grpc://127.0.0.1:2"]):
                    (up,) = running_ups()
                    assert up.targets == ("grpc://127.0.0.1:2",), "the same id, elsewhere"
            assert theirs.exists()
        (up,) = running_ups()
        assert up.targets == ("grpc://127.0.0.1:1",)


def test_what_is_announced_is_in_directories_of_the_user_alone(folder: Path) -> None:
    before = os.umask(0)
    try:
        with announced(["grpc://127.0.0.1:1"]):
            made = [one for one in folder.rglob("*") if one.is_dir()]
            assert folder / ".jflow" in made
            assert {one.stat().st_mode & 0o777 for one in made} == {0o700}
    finally:
        os.umask(before)


def test_two_clusters_have_to_be_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with announced(["grpc://127.0.0.1:1"]):
        (own,) = (folder / ".jflow" / "up").rglob("*.json")
        parent = psutil.Process().parent()
        assert parent is not None
        started = Path(f"/proc/{parent.pid}/stat").read_text().rpartition(")")[2].split()[19]
        other = {"started": started, "targets": ["grpc://127.0.0.1:2"]}
        own.with_name(f"{parent.pid}.json").write_text(json.dumps(other))
        assert main(["status"]) == 2
        assert "2 clusters of `jflow up` are running" in capsys.readouterr().err
        own.with_name(f"{parent.pid}.json").unlink()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--ps", "-1"], "--ps must be at least 0, got -1"),
        (["--ps", "0", "--workers", "0"], "a cluster needs at least one task"),
        (["--logs", "/dev/null/logs"], "--logs: /dev/null/logs cannot be made"),
    ],
)
def test_what_cannot_be_started_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["up", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("--threads", "0", "at least one thread"),
        ("--cpu-devices", "0", "at least one CPU device"),
        ("--gpu-memory-fraction", "2", "at most 1"),
    ],
)
def test_a_part_that_no_task_can_have_is_refused(
    capsys: pytest.CaptureFixture[str], option: str, text: str, said: str
) -> None:
    assert main(["up", option, text]) == 2
    assert said in capsys.readouterr().err


def test_a_cluster_with_a_page_says_where_it_is(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["-m", "jflow", "up", "--ps", "1", "--workers", "0", "--dashboard"]
    with ProgramProcess(command) as up:
        _, target = ready(up)
        url = up.read_line().removeprefix("the page is at ")
        wait_until(running_ups, "the cluster to be announced")
        with urllib.request.urlopen(url.partition("#")[0], timeout=60) as page:
            assert page.status == 200
        for arguments in ([], [target]):
            assert main(["status", *arguments, "--timeout", "30"]) == 0
            assert f"its page is at {url}" in capsys.readouterr().out
        with tf.connect(target) as connection:
            address, _, token = url.partition("#token=")
            card = connection._repr_html_()
            assert address in card
            assert token not in card, "notebooks are shared"
        (found,) = running_ups()
        assert found.page == url
        (file,) = (folder / ".jflow" / "up").rglob("*.json")
        assert file.parent.stat().st_mode & 0o077 == 0, "the token is this user's alone"

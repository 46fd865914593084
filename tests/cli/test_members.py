"""`jflow members`, `jflow drain` and `jflow server --join`, with processes as people start them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import jflow as tf
from jflow.cli.main import main
from jflow.testing import PATIENCE_S, wait_until
from tests.task.server.members import free_port


class Servers:
    """Tasks of a cluster as processes, which keep lists of members in a directory."""

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        self._stack = stack
        self._directory = directory
        self._cluster = {
            job: [f"127.0.0.1:{free_port()}" for _ in range(n)]
            for job, n in {"ps": 2, "worker": 1}.items()
        }
        self.target = f"grpc://{self._cluster['worker'][0]}"

    def start(self, job: str, index: int) -> subprocess.Popen[str]:
        cluster = json.dumps(self._cluster)
        return self.run("--cluster", cluster, "--job", job, "--index", str(index))

    def join(self, job: str) -> tuple[subprocess.Popen[str], str]:
        """Starts a task that joins; also returns its address."""
        address = f"127.0.0.1:{free_port()}"
        joining = ("--join", self.target, "--job", job, "--address", address)
        return self.run(*joining), address

    def run(self, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "jflow",
                "server",
                "--members",
                str(self._directory),
                *arguments,
            ],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
        )
        self._stack.callback(_end, process)
        return process


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def await_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert "is ready" in process.stdout.readline()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack, tmp_path)


def members(servers: Servers, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert main(["members", servers.target, "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_a_task_joins_gets_what_another_one_has_and_the_list_survives_a_kill(
    servers: Servers, capsys: pytest.CaptureFixture[str]
) -> None:
    processes = {name: servers.start(*name) for name in [("ps", 0), ("ps", 1), ("worker", 0)]}
    for process in processes.values():
        await_ready(process)
    with tf.device("/job:ps/task:1"):
        counter = tf.Variable(np.float32(0.0), name="counter")
        add = counter.assign_add(1.0)
    with tf.Session(servers.target) as session:
        session.run(counter.initializer)
        joined, address = servers.join("ps")
        await_ready(joined)
        assert session.run(add) == 1.0
        drain = ["drain", "/job:ps/task:1", servers.target, "--to", "/job:ps/task:2"]
        assert main([*drain, "--timeout", "30"]) == 0
        assert capsys.readouterr().out == (
            "/job:ps/task:1 has left; /job:ps/task:2 has what was on it\n"
        )
        assert processes["ps", 1].wait(PATIENCE_S) == 0
        assert session.run(add) == 2.0

    processes["ps", 0].send_signal(signal.SIGKILL)
    processes["ps", 0].wait(PATIENCE_S)
    assert main(["drain", "/job:ps/task:2", servers.target, "--to", "/job:worker/task:0"]) == 1
    assert "which changes the list of members" in capsys.readouterr().err
    await_ready(servers.start("ps", 0))
    wait_until(lambda: main(["status", servers.target]) == 0)
    capsys.readouterr()
    found = members(servers, capsys)
    assert (found["epoch"], found["leader"]) == (2, "/job:ps/task:0")
    assert found["successors"] == {"/job:ps/task:1": "/job:ps/task:2"}
    assert found["addresses"]["/job:ps/task:2"] == address  # type: ignore[index]
    assert main(["members", servers.target]) == 0
    shown = capsys.readouterr().out
    head, first, *_, left, epoch = shown.splitlines()
    assert head.split() == ["TASK", "ADDRESS"]
    assert first.endswith("changes the list, has the state that requests no device")
    assert left.split() == [
        "/job:ps/task:1",
        "has",
        "left",
        "/job:ps/task:2",
        "has",
        "its",
        "state",
    ]
    assert epoch == "epoch 2"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--join", "grpc://h:1", "--cluster", "{}"], "--join and --cluster exclude each other"),
        (["--join", "grpc://h:1", "--job", "worker"], "--join needs --address"),
        (["--join", "grpc://h:1", "--address", "h"], "--join needs --job"),
    ],
)
def test_options_that_do_not_say_how_to_join_are_refused(
    capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert main(["server", *options]) == 2
    assert words in capsys.readouterr().err

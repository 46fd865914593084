"""A cluster in this process of which tasks leave, and which tasks join."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import jflow as tf
from jflow.cli.watcher import Watcher
from jflow.state.members import MemberList
from jflow.testing import PATIENCE_S, start_servers

PS0, PS1 = "/job:ps/task:0", "/job:ps/task:1"
WORKER_0, WORKER_1 = "/job:worker/task:0", "/job:worker/task:1"


class ChangingCluster:
    """Two parameter servers and two workers in this process, that keep lists of members."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.servers = {
            str(server._task): server
            for server in start_servers(stack.enter_context, {"ps": 2, "worker": 2})
        }

    def target(self, task: str) -> str:
        return self.servers[task].target

    def drain(
        self, task: str, to: str = "", *, hold_s: float = 5.0, seconds: float = PATIENCE_S
    ) -> MemberList:
        """Drains a task through another one, and waits until its server has ended."""
        with closing(Watcher([self.target(WORKER_0)], seconds)) as watcher:
            members = watcher.drain(task, to, hold_s)
        assert self.servers[task].join(PATIENCE_S), "it does not leave"
        return members

    def join(
        self, job: str, through: str = WORKER_0, index: int | None = None, address: str = ""
    ) -> tf.train.Server:
        """Starts one more server, at a free address unless one is given."""
        address = address or f"127.0.0.1:{free_port()}"
        server = tf.train.Server.joining(self.target(through), job, address, index)
        self._stack.enter_context(server)
        self.servers[str(server._task)] = server
        return server


def free_port() -> int:
    """A port that nothing uses."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def changing_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ChangingCluster]:
    """A cluster whose members may change; to be made a fixture."""
    monkeypatch.setenv("JFLOW_MEMBERS", str(tmp_path))
    with ExitStack() as stack:
        yield ChangingCluster(stack)

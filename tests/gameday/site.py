"""The cluster of the day: processes with users, quotas, limits and lists of members."""

from __future__ import annotations

import json
import os
import secrets
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from jflow.cli.status import connected
from jflow.cli.watcher import Seen
from jflow.task.server.stuck import STUCK_EXIT_CODE
from jflow.testing import free_ports, run_program, wait_until
from tests.upgrade.mixed import MixedCluster, Name, Program
from tests.upgrade.releases import ROOT

N_PS, N_WORKERS = 3, 5
OLD_WORKER: Name = ("worker", 4)
"""The task that runs the release before at first."""

USER_QUOTA = "4MiB"
ABANDONED_LIMIT_S = 2
WATCH_S = 10.0

MARK = "JFLOW_USERS_FILE"
"""The environment variable by which the processes of a day are found: its file is in the folder."""


def text(name: Name) -> str:
    """The full name of a task."""
    return f"/job:{name[0]}/task:{name[1]}"


@contextmanager
def accounts(folder: Path) -> Iterator[None]:
    """Context manager in which this process, and what it starts, has a new token of the cluster."""
    token = folder / "token"
    token.write_text(secrets.token_hex(16))
    token.chmod(0o600)
    users = folder / "users"
    users.mkdir(mode=0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("JFLOW_TOKEN", raising=False)
        patch.setenv("JFLOW_TOKEN_FILE", str(token))
        patch.setenv(MARK, str(users / "users.json"))
        yield


def run_cli(*arguments: str) -> str:
    """Runs a command of `jflow` as the operator; returns what it printed."""
    done = run_program(["-m", "jflow", *arguments], cwd=ROOT)
    assert done.returncode == 0, f"jflow {' '.join(arguments)}: {done.stdout}{done.stderr}"
    return done.stdout


class Site(MixedCluster):
    """The cluster, of which one worker runs the release before at first.

    Args:
      folder: where the tasks keep lists of members, and logs.
      former: the code of the release before.
    """

    def __init__(self, folder: Path, former: Path) -> None:
        self._members, self._logs = folder / "members", folder / "logs"
        for each in (self._members, self._logs):
            each.mkdir()
        super().__init__(ROOT, N_PS, N_WORKERS, {OLD_WORKER: former})

    def inspect(self, *kinds: str) -> list[Seen]:
        """All tasks, with what they list of some kinds."""
        with connected(self.target(("ps", 0)), WATCH_S) as watcher:
            return watcher.inspect(kinds)

    def items(self, kind: str) -> list[Any]:
        """What all tasks list of a kind."""
        return [one for seen in self.inspect(kind) for one in seen.items(kind)]

    def states(self) -> dict[str, str]:
        """The state of each task."""
        return {str(seen.report.task): seen.report.state.value for seen in self.inspect()}

    def lose(self, names: Sequence[Name]) -> None:
        """Kills all processes of a machine at once, on which some tasks run."""
        for name in names:
            os.killpg(self.programs[name].process.pid, signal.SIGKILL)
        for name in names:
            self.programs.pop(name).close()

    def restart(self, name: Name) -> None:
        """Starts a task that has ended again, at its address."""
        self._start(name, ROOT)
        self._wait([name])

    def restart_stuck(self, name: Name) -> None:
        """Waits until a task ends because it is stuck, and starts it again, as systemd would."""
        process = self.programs[name].process
        wait_until(lambda: process.poll() is not None, f"{text(name)} to end as it is stuck")
        assert process.returncode == STUCK_EXIT_CODE, process.returncode
        self.programs.pop(name).close()
        self.restart(name)

    def join(self, job: str, index: int | None = None) -> Name:
        """Starts a process that joins the cluster, as a new task or as one that has ended."""
        (port,) = free_ports(1)
        address = f"127.0.0.1:{port}"
        name = (job, len(self.spec[job]) if index is None else index)
        which = [] if index is None else ["--index", str(index)]
        command = ["--join", self.target(("ps", 0)), "--address", address, "--job", job, *which]
        self._start_server(name, ROOT, command)
        self.spec[job][name[1] : name[1] + 1] = [address]
        self._wait([name])
        return name

    def drain(self, name: Name, successor: Name) -> dict[str, Any]:
        """Moves all of a task to another one, and waits until it has ended; what was printed."""
        target = self.target(successor)
        said = run_cli("drain", text(name), target, "--to", text(successor), "--json")
        with self.programs.pop(name) as program:
            wait_until(lambda: program.process.poll() is not None, f"{text(name)} to leave")
            assert program.process.returncode == 0, program.process.returncode
        found: dict[str, Any] = json.loads(said)
        return found

    def log(self, name: Name) -> str:
        """What the processes of a task have logged."""
        return self._log_path(name).read_text()

    def stop(self) -> None:
        """Ends all tasks by SIGTERM."""
        for name in [*self.programs]:
            with self.programs.pop(name) as program:
                assert program.end() == 0, f"{text(name)} did not end by itself"

    def _start(self, name: Name, code: Path) -> None:
        job, index = name
        command = ["--cluster", json.dumps(self.spec), "--job", job, "--index", str(index)]
        self._start_server(name, code, command)

    def _start_server(self, name: Name, code: Path, command: list[str]) -> None:
        options = []
        if code == ROOT:
            options += ["--members", str(self._members), "--quota", f"user={USER_QUOTA}"]
            options += ["--log", "info"]
            if name[0] == "worker":
                limit = str(ABANDONED_LIMIT_S)
                options += ["--restart-when-stuck", "--abandoned-limit-s", limit]
        log = self._log_path(name)
        self.programs[name] = Program(code, "-m", "jflow", "server", *command, *options, log=log)

    def _log_path(self, name: Name) -> Path:
        return self._logs / f"{name[0]}-{name[1]}.log"


class LeftOver:
    """Finds what a day leaves on the machine: processes, and files in /dev/shm that they had.

    Args:
      folder: that of the day.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shared: set[str] = set()

    def look(self) -> list[int]:
        """Notes the files of all processes of the day, this one too; returns the others' ids."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                is_own = process.pid == os.getpid()
                if is_own or process.environ().get(MARK, "").startswith(f"{self._folder}/"):
                    maps = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
                    paths = [line.split(maxsplit=5)[-1] for line in maps if "/dev/shm/" in line]
                    self._shared.update(path for path in paths if path.startswith("/dev/shm/"))
                    if not is_own:
                        found.append(process.pid)
        return found

    def check(self) -> None:
        """Waits until all processes of the day have ended, and their files are gone."""
        wait_until(lambda: not self.look(), "all processes of the day to end", patience=20.0)
        left = [path for path in self._shared if Path(path.removesuffix(" (deleted)")).exists()]
        assert not left, f"left in /dev/shm: {left}"

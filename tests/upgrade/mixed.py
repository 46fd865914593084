"""A cluster whose tasks, and clients, each run the code of a release of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from jflow.base.cluster import Target
from jflow.base.handles import Closing
from jflow.errors import FailedPreconditionError, UnavailableError
from jflow.net.wire import connect
from jflow.testing import PATIENCE_S, free_ports, wait_until

HERE = Path(__file__).parent
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
Name = tuple[str, int]
"""The job and the index of a task."""

NO_TASKS: Mapping[Name, Path] = MappingProxyType({})


class Program(Closing):
    """A Python program of some code of jflow, which says JSON in lines; ended with the context.

    Args:
      code: the folder with the package.
      command: the arguments of Python.
      environment: environment variables beside those of this process.
      log: what its standard error is added to; that of this process if None.
    """

    def __init__(
        self,
        code: Path,
        *command: str,
        environment: Mapping[str, str] = NO_VARIABLES,
        log: Path | None = None,
    ) -> None:
        with ExitStack() as stack:
            stderr = None if log is None else stack.enter_context(log.open("a"))
            self._start(code, command, environment, stderr)

    def _start(
        self,
        code: Path,
        command: Sequence[str],
        environment: Mapping[str, str],
        stderr: IO[str] | None,
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *command],
            env=os.environ | {"PYTHONPATH": str(code)} | dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=code,
            start_new_session=True,
        )

    def lines(self) -> Any:
        """What it says, line by line, until it ends."""
        output: IO[str] | None = self.process.stdout
        assert output is not None
        for line in output:
            if line.startswith("{"):
                yield json.loads(line)

    def say(self, line: str) -> None:
        """Writes a line to its input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self) -> int:
        """Tells it to stop, waits and gives its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        """Ends it, however."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def _leave(self, failed: bool) -> None:
        self.close()


class MixedCluster(Closing):
    """Tasks of processes, each of which is started again at its address with another code.

    Args:
      code: what all tasks run at first.
      n_ps, n_workers: how many tasks each job has.
      others: what some tasks run at first in place of it.
    """

    def __init__(
        self, code: Path, n_ps: int, n_workers: int, others: Mapping[Name, Path] = NO_TASKS
    ) -> None:
        addresses = [f"127.0.0.1:{port}" for port in free_ports(n_ps + n_workers)]
        self.spec = {"ps": addresses[:n_ps], "worker": addresses[n_ps:]}
        self.programs: dict[Name, Program] = {}
        self.names = [(job, i) for job, of_job in self.spec.items() for i in range(len(of_job))]
        for name in self.names:
            self._start(name, others.get(name, code))
        self._wait(self.names)

    def target(self, name: Name) -> str:
        """The target of a session on a task."""
        return f"grpc://{self.spec[name[0]][name[1]]}"

    def replace(self, name: Name, code: Path) -> None:
        """Ends a task by SIGTERM, and starts it with another code at the same address."""
        with self.programs[name] as former:
            assert former.end() == 0
        self._start(name, code)
        self._wait([name])

    def run(
        self, code: Path, *command: str, environment: Mapping[str, str] = NO_VARIABLES
    ) -> list[dict[str, Any]]:
        """Runs a program of some code to its end; gives what it said."""
        with Program(code, *command, environment=environment) as program:
            said = [*program.lines()]
            assert program.process.wait(PATIENCE_S) == 0, f"{command} failed; it said {said}"
            return said

    def _start(self, name: Name, code: Path) -> None:
        job, index = name
        command = ["-m", "jflow", "server", "--cluster", json.dumps(self.spec), "--job", job]
        self.programs[name] = Program(code, *command, "--index", str(index))

    def _wait(self, names: Sequence[Name]) -> None:
        for name in names:
            wait_until(lambda name=name: self._serves(name), f"{name} to serve")

    def _serves(self, name: Name) -> bool:
        assert self.programs[name].process.poll() is None, f"{name} has ended"
        try:
            client = connect(Target.parse(self.target(name)), 1.0)
        except UnavailableError:
            return False
        except FailedPreconditionError:  # it speaks another version, and has said so
            return True
        client.close()
        return True

    def _leave(self, failed: bool) -> None:
        for program in self.programs.values():
            program.close()

"""Runs programs in processes that a test can kill, pause and resume; finds free ports."""

from __future__ import annotations

import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from jflow.base.handles import Closing
from jflow.launch.testing.waiting import PATIENCE_S, cpu_time, wait_until
from jflow.launch.zygote import ForkedProgram, Zygote


def free_ports(n: int) -> list[int]:
    """Returns different loopback ports that are free now, as chosen by the system."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def free_hosts(n: int, port: int = 2222) -> list[str]:
    """Returns different loopback addresses on which `port` is free now."""
    hosts: list[str] = []
    while len(hosts) < n:
        host = f"127.{random.randint(1, 254)}.{random.randint(0, 254)}.{random.randint(1, 254)}"
        with socket.socket() as probe, suppress(OSError):
            probe.bind((host, port))
            hosts.append(host)
    return hosts


class ProgramProcess(Closing):
    """A program in a process of its own, which is ended at the latest when the context exits.

    Its standard error is that of this process.

    Args:
      command: the program and its arguments; a path that ends in ".py", and arguments that begin
        with "-m", are run with this Python.
      environment: environment variables beside those of this process.
      zygote: starts the program, which then is "-m" and a module; a new Python if None.
    """

    def __init__(
        self,
        command: Sequence[str | os.PathLike[str]],
        environment: Mapping[str, str] | None = None,
        *,
        zygote: Zygote | None = None,
    ) -> None:
        self._command = _with_python(command)
        variables = os.environ | dict(environment or {})
        self._process: subprocess.Popen[bytes] | ForkedProgram
        if zygote is not None:
            self._process = zygote.start([os.fspath(part) for part in command], variables)
        else:
            self._process = subprocess.Popen(
                self._command,
                env=variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # Ctrl-C in a terminal is for the test run.
                start_new_session=True,
            )
        self._unread = b""

    @property
    def pid(self) -> int:
        """The process id of the program."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for the signal that ended the program; None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """Kills the process (SIGKILL), as a crash of its machine would."""
        self._process.kill()
        self._process.wait()

    def terminate(self) -> None:
        """Tells the process to end (SIGTERM)."""
        self._process.terminate()

    def pause(self) -> None:
        """Pauses the process (SIGSTOP), which keeps its connections but does not respond.

        Returns when it has stopped.
        """
        pause_process(self._process.pid)

    def resume(self) -> None:
        """Resumes the process (SIGCONT) after `pause`."""
        self._process.send_signal(signal.SIGCONT)

    def write_line(self, text: str) -> None:
        """Writes a line to the program's standard input. Raises BrokenPipeError if it has ended."""
        stdin = _pipe(self._process.stdin)
        stdin.write(text.encode() + b"\n")
        stdin.flush()

    def has_line(self) -> bool:
        """Whether `read_line` would return immediately, with a line or at the end of output."""
        return self._has_line() or self._read()

    def read_line(self, patience: float = PATIENCE_S) -> str:
        """Returns the next line of standard output without its end; "" if the program ended.

        Raises:
          AssertionError: if the program neither printed nor computed for the patience, in seconds.
        """
        wait_until(
            self.has_line,
            f"a line of output of {self._name}",
            patience=patience,
            progress=lambda: (cpu_time(self.pid), self._unread),
        )
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def wait(self, patience: float = PATIENCE_S) -> int:
        """Blocks until the program has ended, and returns its exit code. Raises as `read_line`."""
        wait_until(
            lambda: self.exit_code is not None,
            f"the end of {self._name}",
            patience=patience,
            progress=lambda: cpu_time(self.pid),
        )
        return self._process.wait()

    def close(self) -> None:
        """Kills the process if it still runs, and closes the pipes. May be called again."""
        if self.exit_code is None:
            self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            _pipe(pipe).close()

    def _leave(self, failed: bool) -> None:
        self.close()

    @property
    def _name(self) -> str:
        return f"process {self.pid} ({' '.join(self._command[:4])})"

    def _has_line(self) -> bool:
        return b"\n" in self._unread

    def _read(self) -> bool:
        """Reads available output; returns whether there is a line now, or the output has ended."""
        stdout = _pipe(self._process.stdout)
        if not select.select([stdout], [], [], 0)[0]:
            return False
        read = os.read(stdout.fileno(), 1 << 16)
        self._unread += read
        return not read or self._has_line()


def run_program(
    command: Sequence[str | os.PathLike[str]],
    environment: Mapping[str, str] | None = None,
    *,
    cwd: str | os.PathLike[str] | None = None,
    patience: float = PATIENCE_S,
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end; fails only if it neither prints nor computes for too long.

    Args:
      command: as for `ProgramProcess`.
      environment: environment variables beside those of this process.
      cwd: the directory that it runs in; this process's if None.
      patience: how long it may neither print nor compute, in seconds.

    Returns:
      Its exit code and what it printed.

    Raises:
      AssertionError: if it does neither for that long; it is killed.
    """
    argv = _with_python(command)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            argv,
            env=os.environ | dict(environment or {}),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
        try:
            wait_until(
                lambda: process.poll() is not None,
                f"the end of process {process.pid} ({' '.join(argv[:4])})",
                patience=patience,
                progress=lambda: (cpu_time(process.pid), _size(out), _size(err)),
            )
        finally:
            process.kill()
            process.wait()
        return subprocess.CompletedProcess(argv, process.returncode, _text(out), _text(err))


def _with_python(command: Sequence[str | os.PathLike[str]]) -> list[str]:
    argv = [os.fspath(part) for part in command]
    is_python = argv[0] == "-m" or argv[0] == "-c" or Path(argv[0]).suffix == ".py"
    return [sys.executable, *argv] if is_python else argv


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def _size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def pause_process(pid: int) -> None:
    """Pauses a process (SIGSTOP) and waits until all of its threads have stopped."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: _is_stopped(pid), f"process {pid} to stop")


def _is_stopped(pid: int) -> bool:
    """Whether no thread of a process runs, or the process has ended."""
    states = []
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):  # the thread has ended
            states.append(stat.read_text().rpartition(")")[2].split()[0])
    return all(state in "TtXZ" for state in states)

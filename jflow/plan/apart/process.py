"""`ApartProcess`: starts a process that does work which may end it, and gives it that work."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from jflow.errors import InternalError
from jflow.plan.apart.main import become
from jflow.plan.apart.messages import LAST, ApartMessage, MessageKind, receive, send

_MAIN = "from jflow.plan.apart.main import main; main()"
_START_S = 120.0
"""How long a process may take to import JAX, in seconds."""
_POLL_S = 0.002
_TICK_S = 1.0
_GRACE_S = 5.0
"""How long a process that has closed its socket may take to end until it is killed, in seconds."""


@dataclass(frozen=True)
class ApartJob:
    """The kind of work that a process does.

    Attributes:
      module: the name of the module that does it; see `main.ApartWork`.
      does: what the process does, such as "compiles programs", for messages.
      max_answer: the most bytes of an answer.
      keeps_stderr: whether it writes to the standard error of this process.
      environment: variables beside those of this process that are not jflow's.
    """

    module: str
    does: str
    max_answer: int
    keeps_stderr: bool = False
    environment: tuple[tuple[str, str], ...] = ()


class ApartEndedError(Exception):
    """A process has ended while it had work.

    Args:
      how: the name of the signal, or its exit code.
      has_begun: whether it had begun with the work, which therefore is the reason.

    Attributes:
      how, has_begun: as given.
    """

    def __init__(self, how: str, has_begun: bool) -> None:
        super().__init__(how)
        self.how = how
        self.has_begun = has_begun


class ApartProcess:
    """A process that does work for this one, and ends when this process ends.

    It has imported JAX. It is a new Python, because a process that has started JAX must not fork,
    unless `forks`.

    Args:
      job: what it does.
      arguments: numbers for its module.
      forks: whether it is a fork of this process, which has imported JAX, and started neither that
        nor a thread; a fork is ready at once.

    Attributes:
      pid: its process id.
      has_ended: whether it has ended, and left no zombie.
      is_ready: whether it has taken or can take work.
    """

    def __init__(self, job: ApartJob, *arguments: int, forks: bool = False) -> None:
        self._job = job
        self.has_ended = False
        self.is_ready = False
        here, there = socket.socketpair()
        self._socket = here
        with there:
            start = _fork if forks else _start_new
            self._process = start(job, there.fileno(), *arguments)
        self.pid = self._process.pid

    def fileno(self) -> int:
        """Returns the file descriptor that is readable once the process is ready, or ends idle."""
        return self._socket.fileno()

    @property
    def how_it_ended(self) -> str:
        """How the process ended: the name of a signal, or its exit code."""
        code = self._process.returncode
        with suppress(ValueError):
            if code is not None and code < 0:
                return signal.Signals(-code).name
        return f"the exit code {code}"

    def await_ready(self) -> None:
        """Blocks until the process has started; detects that it has ended.

        Raises:
          InternalError: if it could not start.
        """
        try:
            receive(self._socket, 0, time.monotonic() + _START_S)
        except OSError as error:
            self._reap()
            if self.is_ready:
                return
            reason = str(error) or f"it took longer than {_START_S:g} s"
            raise InternalError(
                f"the process that {self._job.does} could not be started ({self.how_it_ended}): "
                f"{reason}; {sys.executable!r} has to be able to import jflow"
            ) from None
        self.is_ready = True

    def ask(
        self,
        data: bytes,
        deadline: float | None = None,
        gives_up: Callable[[], bool] = lambda: False,
    ) -> ApartMessage:
        """Gives a piece of work to the process and returns its answer.

        Blocks until the process has started, and then until it has answered.

        Args:
          data: the work.
          deadline: when the process is ended, by `time.monotonic()`; None for never.
          gives_up: called each second while the process works; if it returns True, that is ended.

        Raises:
          TimeoutError: if the process was ended because it took too long.
          ApartEndedError: if it ended by itself.
          InternalError: if it could not start.
        """
        if not self.is_ready:
            self.await_ready()
        has_begun, limit = False, self._job.max_answer
        try:
            send(self._socket, ApartMessage(MessageKind.WORK, data), deadline)
            has_begun = receive(self._socket, 0, deadline).kind is MessageKind.BEGUN
            self._await_answer(deadline, gives_up)
            reply = receive(self._socket, limit, deadline)
        except TimeoutError:
            self.end()
            raise
        except OSError:
            self._reap()
            raise ApartEndedError(self.how_it_ended, has_begun) from None
        if reply.flags & LAST:
            self._reap()
        return reply

    def kill(self) -> None:
        """Kills the process; thread-safe."""
        self._process.kill()

    def end(self) -> None:
        """Kills the process unless it has ended, and reaps it."""
        self._socket.close()
        self._process.kill()
        self._process.wait()
        self.has_ended = True

    def _await_answer(self, deadline: float | None, gives_up: Callable[[], bool]) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while not poll.poll(_TICK_S * 1000):
            if gives_up() or (deadline is not None and time.monotonic() > deadline):
                raise TimeoutError

    def _reap(self) -> None:
        """Reaps a process that has closed its end of the socket."""
        # It does so when it ends; then its exit code is there at once.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_S)
        self.end()


class _ForkedProcess:
    """A forked process with those methods of `subprocess.Popen` that are needed."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> None:
        """Waits up to `timeout` seconds for its end. Raises TimeoutExpired if it still runs."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            pid, status = os.waitpid(self.pid, 0 if deadline is None else os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
            elif deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
            else:
                time.sleep(_POLL_S)

    def kill(self) -> None:
        """Sends SIGKILL, unless the process has ended."""
        if self.returncode is None:  # until it is waited for, its process id is kept
            os.kill(self.pid, signal.SIGKILL)


def _start_new(job: ApartJob, number: int, *arguments: int) -> subprocess.Popen[bytes]:
    """Starts a new Python process; the arguments are those of `main`."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _MAIN, str(number), job.module, *map(str, arguments)],
        pass_fds=(number,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=None if job.keeps_stderr else subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is not for it
        env=_environment() | dict(job.environment),
    )


def _fork(job: ApartJob, number: int, *arguments: int) -> _ForkedProcess:
    """Forks this process; the arguments are those of `main`."""
    pid = os.fork()
    if not pid:
        become(number, job.keeps_stderr, job.module, *arguments)
    return _ForkedProcess(pid)


def _environment() -> dict[str, str]:
    """Returns the environment of this process without `JFLOW_*`, with its paths of imports."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("JFLOW_")}
    folders = [str(Path(__file__).parents[3]), *filter(None, sys.path)]
    return environment | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(folders))}

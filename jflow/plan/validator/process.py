"""`ValidatorProcess`: starts a validator process and sends programs to it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from jflow.errors import InternalError, InvalidArgumentError
from jflow.plan.validator.main import become
from jflow.plan.validator.messages import (
    LAST,
    MessageKind,
    ValidatorMessage,
    program_of,
    receive,
    send,
)
from jflow.plan.xla.validation import MAX_PROGRAM_BYTES, ValidProgram

_MAIN = "from jflow.plan.validator.main import main; main()"
_START_S = 120.0
"""How long a validator may take to import JAX, in seconds."""
_POLL_S = 0.002
_GRACE_S = 5.0
"""How long a validator may take to notice that a program took too long, before it is killed."""
_MAX_ANSWER = 2 * MAX_PROGRAM_BYTES


@dataclass(frozen=True)
class ValidationLimits:
    """Limits for the validation of one program.

    Attributes:
      seconds: the time.
      n_bytes: the memory beyond that of an idle validator.
    """

    seconds: int = 60
    n_bytes: int = 4 << 30


class ValidatorProcess:
    """A validator process, which ends when this process ends.

    It has imported JAX and started no backend of it. It is a new Python, because a process that has
    started JAX must not fork, unless `forks`.

    Args:
      limits: what a program may take.
      forks: whether it is a fork of this process, which has imported JAX, and started neither that
        nor a thread; a fork is ready at once.

    Attributes:
      pid: its process id.
      has_ended: whether it has ended, and left no zombie.
      is_ready: whether it has taken or can take programs.
    """

    def __init__(
        self, limits: ValidationLimits = ValidationLimits(), *, forks: bool = False
    ) -> None:
        self._limits = limits
        self.has_ended = False
        self.is_ready = False
        here, there = socket.socketpair()
        self._socket = here
        with there:
            start = _fork if forks else _start_new
            self._process = start(there.fileno(), limits.seconds, limits.n_bytes)
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
                "the process that validates programs from other processes could not be started "
                f"({self.how_it_ended}): {reason}; {sys.executable!r} has to be able to import "
                "jflow"
            ) from None
        self.is_ready = True

    def validate(self, name: str, data: bytes) -> ValidProgram:
        """Validates a program; blocks until the process has started.

        Args:
          name: what errors call the program.
          data: a serialized `jax.export.Exported`.

        Raises:
          InvalidArgumentError: if the program is refused, or has ended the process.
          InternalError: if the process could not start.
        """
        if not self.is_ready:
            self.await_ready()
        named = f"the program {name} of {len(data)} bytes"
        too_slow = InvalidArgumentError(
            f"{named} took longer than {self._limits.seconds} s to validate"
        )
        deadline = time.monotonic() + self._limits.seconds + _GRACE_S
        try:
            send(self._socket, ValidatorMessage(MessageKind.PROGRAM, data), deadline)
            reply = receive(self._socket, _MAX_ANSWER, deadline)
        except TimeoutError:
            self.end()
            raise too_slow from None
        except OSError:
            self._reap()
            if self._process.returncode == -signal.SIGALRM:
                raise too_slow from None
            raise InvalidArgumentError(
                f"{named} is malformed: the process that validates programs ended with "
                f"{self.how_it_ended} while it parsed it"
            ) from None
        if reply.flags & LAST:
            self._reap()
        if reply.kind is MessageKind.VALID:
            return program_of(reply)
        reason = reply.data.decode(errors="replace")
        raise InvalidArgumentError(f"{named} is refused: {reason}")

    def kill(self) -> None:
        """Kills the process; thread-safe."""
        self._process.kill()

    def end(self) -> None:
        """Kills the process unless it has ended, and reaps it."""
        self._socket.close()
        self._process.kill()
        self._process.wait()
        self.has_ended = True

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
                raise subprocess.TimeoutExpired("validator", timeout or 0.0)
            else:
                time.sleep(_POLL_S)

    def kill(self) -> None:
        """Sends SIGKILL, unless the process has ended."""
        if self.returncode is None:  # until it is waited for, its process id is kept
            os.kill(self.pid, signal.SIGKILL)


def _start_new(*arguments: int) -> subprocess.Popen[bytes]:
    """Starts a validator in a new Python process; the arguments are those of `main`."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _MAIN, *map(str, arguments)],
        pass_fds=arguments[:1],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        # What MLIR says about malformed programs has their bytes in it.
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is not for it
        env=_environment(),
    )


def _fork(*arguments: int) -> _ForkedProcess:
    """Forks this process into a validator; the arguments are those of `main`."""
    pid = os.fork()
    if not pid:
        become(*arguments)
    return _ForkedProcess(pid)


class ValidationOutcome(NamedTuple):
    """The result of validating one program.

    Attributes:
      valid: the valid program; None if it was refused.
      reason: why it was refused.
      how_it_ended: how the process ended by it; None if it did not.
    """

    valid: ValidProgram | None
    reason: str = ""
    how_it_ended: str | None = None


def outcomes(programs: Iterable[bytes], limits: ValidationLimits) -> Iterator[ValidationOutcome]:
    """Validates many programs in turn and yields the outcomes, for fuzz tests.

    A second process is always there, so that one that ends costs no start.
    """
    process, spare = ValidatorProcess(limits), ValidatorProcess(limits)
    try:
        for data in programs:
            try:
                outcome = ValidationOutcome(process.validate("", data))
            except InvalidArgumentError as error:
                how = process.how_it_ended if process.has_ended else None
                outcome = ValidationOutcome(None, error.message, how)
            if process.has_ended:
                process, spare = spare, ValidatorProcess(limits)
            yield outcome
    finally:
        process.end()
        spare.end()


def _environment() -> dict[str, str]:
    """Returns the validator's environment: no `JFLOW_*`, one OpenMP and one OpenBLAS thread."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("JFLOW_")}
    folders = [str(Path(__file__).parents[3]), *filter(None, sys.path)]
    return environment | {
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(folders)),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }

"""`Validator`: validates programs for all threads of a process, each program once."""

from __future__ import annotations

import atexit
import logging
import os
import select
import socket
import threading
from collections import OrderedDict, deque
from concurrent.futures import Future
from contextlib import suppress

from jflow.base import forks
from jflow.base.logs import event
from jflow.errors import InternalError, InvalidArgumentError, OpError, ResourceExhaustedError
from jflow.plan.validator.process import ValidationLimits, ValidatorProcess
from jflow.plan.xla.validation import MAX_PROGRAM_BYTES, ValidProgram

_LOG = logging.getLogger(__name__)
_N_WAITING = 1024
_MAX_WAITING_BYTES = 1 << 30
_MAX_KEPT_BYTES = 64 << 20
_N_DIGITS = 12
_LINGER_S = 30.0
"""How long an idle process stays that no server needs, in seconds."""


@forks.guarded("start", "validate", ignored=("stop", "close"))
class Validator:
    """Validates programs in a separate process; thread-safe.

    The process is started with the first server of this process, or with the first program, and
    again if it has ended. It ends some time after the last server. A program that crashes it, or
    takes too long there, is refused; others are not affected.

    Args:
      limits: what a program may take.

    Attributes:
      n_validated: number of programs that the process has answered or that have ended it.
    """

    def __init__(self, limits: ValidationLimits | None = None) -> None:
        self.n_validated = 0
        self._limits = limits or ValidationLimits()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._process: ValidatorProcess | None = None
        self._n_users = 0
        self._is_closed = False
        self._waiting: deque[tuple[str, bytes, Future[ValidProgram]]] = deque()
        self._n_waiting_bytes = 0
        self._pending: dict[str, Future[ValidProgram]] = {}
        self._valid: OrderedDict[str, ValidProgram] = OrderedDict()
        self._n_valid_bytes = 0
        self._has_failed = False
        # Made with the thread: forks of a process that has only imported this must not share them.
        self._wake: socket.socket | None = None
        self._woken: socket.socket | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the validator; None if there is none."""
        process = self._process
        return None if process is None or process.has_ended else process.pid

    def start(self) -> None:
        """Starts the process in the background; it runs until `stop` has been called as often."""
        with self._lock:
            self._n_users += 1
            self._run()

    def fork(self) -> None:
        """Forks the validator from this process, which has imported JAX but started nothing.

        A new Python takes a second of a processor for what this one has imported. Call it before
        anything else, once.
        """
        self._process = ValidatorProcess(self._limits, forks=True)

    def stop(self) -> None:
        """Undoes one call of `start`; after the last one, the process ends when it is idle."""
        with self._lock:
            self._n_users -= 1
            self._notify()

    def validate(self, digest: str, data: bytes) -> Future[ValidProgram]:
        """Validates a program; the result is cached.

        Args:
          digest: its name; equal programs only have equal ones.
          data: a serialized `jax.export.Exported`.

        Returns:
          The valid program; or InvalidArgumentError if it is refused, ResourceExhaustedError if
          too many programs wait, and InternalError if the process cannot be started.
        """
        future: Future[ValidProgram] = Future()
        future.set_running_or_notify_cancel()  # others may wait for it, too
        with self._lock:
            if digest in self._valid:
                self._valid.move_to_end(digest)
                future.set_result(self._valid[digest])
                return future
            if digest in self._pending:
                return self._pending[digest]
            if (error := self._refusal(data)) is not None:
                future.set_exception(error)
                return future
            self._pending[digest] = future
            self._waiting.append((digest, data, future))
            self._n_waiting_bytes += len(data)
            self._run()
        return future

    def close(self) -> None:
        """Ends the process for good; pending calls fail."""
        with self._lock:
            self._is_closed = True
            self._notify()
            thread, process = self._thread, self._process
        if process is not None:
            process.kill()
        if thread is not None:
            thread.join()

    def _refusal(self, data: bytes) -> OpError | None:
        if self._is_closed:
            return InternalError("the process ends, and validates no programs any more")
        if len(data) > MAX_PROGRAM_BYTES:
            return InvalidArgumentError(
                f"a program has {len(data)} bytes, expected at most {MAX_PROGRAM_BYTES}; pass "
                "large arrays as arguments"
            )
        if (
            len(self._waiting) >= _N_WAITING
            or self._n_waiting_bytes + len(data) > _MAX_WAITING_BYTES
        ):
            return ResourceExhaustedError(
                f"{len(self._waiting)} programs of {self._n_waiting_bytes} bytes wait to be "
                "validated; register this one later"
            )
        return None

    # The thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        """Starts the thread, or wakes it. The lock must be held."""
        if self._thread is None and not self._is_closed:
            self._wake, self._woken = socket.socketpair()
            self._wake.setblocking(False)
            self._thread = threading.Thread(target=self._serve, name="jflow validator", daemon=True)
            self._thread.start()
            atexit.register(_close_at_exit, self, os.getpid())
        self._notify()

    def _notify(self) -> None:
        if self._wake is not None:
            with suppress(BlockingIOError):  # it is about to wake
                self._wake.send(b"x")

    def _serve(self) -> None:
        while not self._is_closed:
            self._ensure_process()
            item = self._next()
            if item is None:
                self._wait()
                continue
            self._answer(*item)
        self._end()

    def _ensure_process(self) -> None:
        """Starts the process if it is needed and not running."""
        process = self._process
        if process is not None and process.has_ended:
            process = self._process = None
        if process is None and (self._waiting or (self._n_users and not self._has_failed)):
            try:
                self._process = ValidatorProcess(self._limits)
            except Exception:  # what waits gets an error, and the thread goes on
                _LOG.exception("the process that validates programs could not be started")
                self._has_failed = True

    def _next(self) -> tuple[str, bytes, Future[ValidProgram]] | None:
        with self._lock:
            if not self._waiting:
                return None
            item = self._waiting.popleft()
            self._n_waiting_bytes -= len(item[1])
            return item

    def _wait(self) -> None:
        """Waits for work, or for an idle process to end."""
        poll, process, woken = select.poll(), self._process, self._woken
        assert woken is not None
        poll.register(woken, select.POLLIN)
        if process is not None:
            poll.register(process, select.POLLIN)
        limit = None if self._n_users or process is None else _LINGER_S * 1000
        ready = {file for file, _ in poll.poll(limit)}
        if woken.fileno() in ready:
            woken.recv(4096)
        if process is None:
            return
        if not ready:
            process.end()
        elif process.fileno() in ready:
            with suppress(InternalError):
                process.await_ready()
            if process.has_ended:
                _log_end(process)
            if not process.is_ready:
                self._has_failed = True  # the next would fail, too; a program tries it again

    def _answer(self, digest: str, data: bytes, future: Future[ValidProgram]) -> None:
        process = self._process
        outcome: ValidProgram | OpError
        try:
            if process is None:
                raise InternalError("the process that validates programs could not be started")
            outcome = process.validate(digest[:_N_DIGITS], data)
        except OpError as error:
            outcome = error
        except Exception as error:  # the thread must go on
            _LOG.exception("the validator's thread failed")
            outcome = InternalError(f"a program could not be validated: {error!r}")
        if process is not None and process.has_ended and isinstance(outcome, OpError):
            _log_end(process)
        self._has_failed = isinstance(outcome, InternalError)
        with self._lock:
            self._pending.pop(digest, None)
            self.n_validated += 1
            if isinstance(outcome, ValidProgram):
                self._keep(digest, outcome)
        if isinstance(outcome, ValidProgram):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)

    def _keep(self, digest: str, program: ValidProgram) -> None:
        self._valid[digest] = program
        self._n_valid_bytes += len(program.data)
        while self._n_valid_bytes > _MAX_KEPT_BYTES:
            _, oldest = self._valid.popitem(last=False)
            self._n_valid_bytes -= len(oldest.data)

    def _end(self) -> None:
        if self._process is not None:
            self._process.end()
        while (item := self._next()) is not None:
            item[2].set_exception(InternalError("the process ends, and validates no programs"))


def _log_end(process: ValidatorProcess) -> None:
    event(_LOG, logging.WARNING, "validator_ended", how=process.how_it_ended)


def _close_at_exit(validator: Validator, pid: int) -> None:
    if os.getpid() == pid:
        validator.close()


VALIDATOR = Validator()
"""The validator of this process; its servers share it."""

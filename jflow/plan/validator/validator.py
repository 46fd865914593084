"""`Validator`: validates programs for all threads of a process, each program once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

from jflow.base import forks
from jflow.errors import InvalidArgumentError, OpError, ResourceExhaustedError
from jflow.plan.apart.queue import ApartQueue
from jflow.plan.validator.process import ValidationLimits, ValidatorProcess
from jflow.plan.xla.validation import MAX_PROGRAM_BYTES, ValidProgram

_N_WAITING = 1024
_MAX_WAITING_BYTES = 1 << 30
_MAX_KEPT_BYTES = 64 << 20
_N_DIGITS = 12


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
        self._queue = ApartQueue("validator", lambda: ValidatorProcess(self._limits))
        self._n_waiting_bytes = 0
        self._pending: dict[str, Future[ValidProgram]] = {}
        self._valid: OrderedDict[str, ValidProgram] = OrderedDict()
        self._n_valid_bytes = 0

    @property
    def pid(self) -> int | None:
        """Process id of the validator; None if there is none."""
        return next(iter(self._queue.pids), None)

    def start(self) -> None:
        """Starts the process in the background; it runs until `stop` has been called as often."""
        self._queue.start()

    def fork(self) -> None:
        """Forks the validator from this process, which has imported JAX but started nothing.

        A new Python takes a second of a processor for what this one has imported. Call it before
        anything else, once.
        """
        self._queue.adopt(ValidatorProcess(self._limits, forks=True))

    def stop(self) -> None:
        """Undoes one call of `start`; after the last one, the process ends when it is idle."""
        self._queue.stop()

    def validate(self, digest: str, data: bytes) -> Future[ValidProgram]:
        """Validates a program; the result is cached.

        Args:
          digest: its name; equal programs only have equal ones.
          data: a serialized `jax.export.Exported`.

        Returns:
          The valid program; or InvalidArgumentError if it is refused, ResourceExhaustedError if
          too many programs wait, and InternalError if the process cannot be started.
        """
        with self._lock:
            if digest in self._valid:
                self._valid.move_to_end(digest)
                return _done(self._valid[digest])
            if digest in self._pending:
                return self._pending[digest]
            if (error := self._refusal(data)) is not None:
                return _done(error)
            self._n_waiting_bytes += len(data)
            future = self._queue.put(lambda process: self._validate(process, digest, data))
            if not future.done():
                self._pending[digest] = future
        return future

    def close(self) -> None:
        """Ends the process for good; pending calls fail."""
        self._queue.close()

    def _refusal(self, data: bytes) -> OpError | None:
        if len(data) > MAX_PROGRAM_BYTES:
            return InvalidArgumentError(
                f"a program has {len(data)} bytes, expected at most {MAX_PROGRAM_BYTES}; pass "
                "large arrays as arguments"
            )
        n_waiting = self._queue.n_waiting
        if n_waiting >= _N_WAITING or self._n_waiting_bytes + len(data) > _MAX_WAITING_BYTES:
            return ResourceExhaustedError(
                f"{n_waiting} programs of {self._n_waiting_bytes} bytes wait to be validated; "
                "register this one later"
            )
        return None

    def _validate(
        self, process: Callable[[], ValidatorProcess], digest: str, data: bytes
    ) -> ValidProgram:
        with self._lock:
            self._n_waiting_bytes -= len(data)
        program = None
        try:
            validated = process().validate(digest[:_N_DIGITS], data)
            program = replace(validated, digest=digest)
        finally:
            with self._lock:
                self._pending.pop(digest, None)
                self.n_validated += 1
                if program is not None:
                    self._keep(digest, program)
        return program

    def _keep(self, digest: str, program: ValidProgram) -> None:
        self._valid[digest] = program
        self._n_valid_bytes += len(program.data)
        while self._n_valid_bytes > _MAX_KEPT_BYTES:
            _, oldest = self._valid.popitem(last=False)
            self._n_valid_bytes -= len(oldest.data)


def _done(outcome: ValidProgram | OpError) -> Future[ValidProgram]:
    """Returns a future that has ended."""
    future: Future[ValidProgram] = Future()
    if isinstance(outcome, OpError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
    return future


VALIDATOR = Validator()
"""The validator of this process; its servers share it."""

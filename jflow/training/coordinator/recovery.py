"""`Recovery`: decides what becomes of attempts that lost a parameter server, on its own thread.

A worker that cannot reach a parameter server says the same as one whose parameter server has died.
So the server is asked from here. If it answers in the life in which it has the variables, the
closures run again, a few times. Else it is lost with its variables: either that is the error of the
closures, or all workers stop until it is back and its variables are restored.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Protocol

from jflow.base.cluster import Task
from jflow.errors import FailedPreconditionError, OpError, UnavailableError
from jflow.training.coordinator.link_attempt import LinkAttempt
from jflow.training.coordinator.losses import Tolerance, unavailable
from jflow.training.coordinator.restoring import StateRestorer

_LOG = logging.getLogger(__name__)

N_IGNORED = 3
"""How many reports of a parameter server that answers are ignored in a row, as in TensorFlow."""

_CHECKED_S = 0.5


@dataclass(frozen=True)
class RecoveryOptions:
    """The options of a coordinator for lost tasks.

    Attributes:
      servers: the parameter servers.
      restorer: asks and restores them.
      restores: whether lost variables are restored; else closures that use them fail.
      claim: the name and epoch that connections to workers work under; None for none.
    """

    servers: tuple[Task, ...]
    restorer: StateRestorer
    restores: bool = False
    claim: tuple[str, int] | None = None


class RecoveryEvents(Protocol):
    """Callbacks for the decisions of a recovery, called on its thread."""

    def retry(self, worker: int, attempt: LinkAttempt) -> None:
        """Runs the closures of an attempt again, on a new connection to the worker."""

    def fail_attempt(self, attempt: LinkAttempt, error: BaseException) -> None:
        """Fails an attempt with its own error."""

    def give_up(self, worker: int, attempt: LinkAttempt, error: OpError) -> None:
        """Fails an attempt, and reconnects to its worker."""

    def fail_all(self, error: OpError) -> None:
        """Fails all open closures with an error."""

    def stop_workers(self) -> None:
        """Closes all connections to workers until `resume_workers`."""

    def resume_workers(self) -> None:
        """Allows connections to workers again."""


@dataclass(frozen=True)
class _Report:
    """A report of an attempt that lost a parameter server."""

    worker: int
    attempt: LinkAttempt
    error: BaseException
    task: Task

    @property
    def is_of_closure(self) -> bool:
        """Whether the error is the closure's own if the server was not lost."""
        return isinstance(self.error, FailedPreconditionError)


@dataclass(eq=False)
class _Request:
    """A caller that waits until lost parameter servers are back.

    Attributes:
      is_over: set when that is decided.
      error: why they are not back.
    """

    is_over: threading.Event = field(default_factory=threading.Event)
    error: OpError | None = None


class Recovery:
    """Decides what happens when parameter servers are lost.

    Args:
      restorer: asks and restores them.
      restores: whether lost variables are restored; else attempts that used them fail.
      events: what is to be done.

    Attributes:
      n_restored: how often lost variables were restored.
    """

    def __init__(self, restorer: StateRestorer, events: RecoveryEvents, *, restores: bool) -> None:
        self.n_restored = 0
        self._restorer = restorer
        self._events = events
        self._restores = restores
        self._tolerance = Tolerance(N_IGNORED)
        self._reports: SimpleQueue[_Report | _Request | None] = SimpleQueue()
        self._closing = threading.Event()
        self._thread = threading.Thread(
            target=self._decide_reports, name="jflow recovery", daemon=True
        )
        self._thread.start()

    def report(self, worker: int, attempt: LinkAttempt, error: BaseException, task: Task) -> None:
        """Handles an attempt that failed because a parameter server seems lost; never blocks."""
        self._reports.put(_Report(worker, attempt, error, task))

    def repair(self, error: OpError) -> None:
        """Blocks until lost parameter servers are back and restored, if the options say so.

        Args:
          error: of the call that lost them, which is raised if it is not wanted.

        Raises:
          UnavailableError: if they do not come back, or cannot be restored.
        """
        if not self._restores or self._closing.is_set():
            raise error
        request = _Request()
        self._reports.put(request)
        while not request.is_over.wait(_CHECKED_S):
            if not self._thread.is_alive():
                raise error  # it was closed meanwhile
        if request.error is not None:
            raise request.error

    def succeeded(self) -> None:
        """Records that an attempt succeeded."""
        self._tolerance.succeeded()

    def close(self) -> None:
        """Ends the thread; attempts that wait for a decision fail."""
        self._closing.set()
        self._reports.put(None)

    def _decide_reports(self) -> None:
        while (report := self._reports.get()) is not None:
            if isinstance(report, _Request):
                self._serve_request(report)
                continue
            together = [report]
            while not self._reports.empty():
                following = self._reports.get()
                if not isinstance(following, _Report):
                    self._reports.put(following)
                    break
                together.append(following)
            try:
                self._decide(together)
            except Exception as error:  # else its attempts would run for ever
                _LOG.exception("an internal error of the recovery")
                self._give_up(together, UnavailableError(f"the recovery failed: {error}"))

    def _decide(self, reports: list[_Report]) -> None:
        """Decides about attempts that have failed at about the same time."""
        tasks = dict.fromkeys(report.task for report in reports)
        lost = [task for task in tasks if not self._restorer.is_there(task)]
        for report in [one for one in reports if one.is_of_closure and one.task not in lost]:
            reports.remove(report)
            self._events.fail_attempt(report.attempt, report.error)
        tasks = dict.fromkeys(report.task for report in reports)
        ignored = [self._tolerance.reported(task) for task in tasks]
        if not lost and all(ignored):
            for report in reports:
                self._events.retry(report.worker, report.attempt)
            return
        if not self._restores:
            self._give_up(reports)
            return
        if (error := self._bring_back()) is not None:
            self._events.fail_all(error)

    def _serve_request(self, request: _Request) -> None:
        """Brings parameter servers back for a caller, and runs closures again meanwhile."""
        try:
            request.error = self._bring_back()
        except Exception as error:  # else the caller would wait for ever
            _LOG.exception("an internal error of the recovery")
            request.error = UnavailableError(f"the recovery failed: {error}")
        finally:
            request.is_over.set()

    def _bring_back(self) -> OpError | None:
        """Stops all workers until all servers are back with their variables; returns why not."""
        self._events.stop_workers()
        try:
            self._restorer.bring_back(self._closing)
        except OpError as error:
            return error
        finally:
            self._events.resume_workers()
        self.n_restored += 1
        self._tolerance.succeeded()
        return None

    def _give_up(self, reports: list[_Report], error: OpError | None = None) -> None:
        for report in reports:
            lost = error or unavailable(report.error, report.task)
            self._events.give_up(report.worker, report.attempt, lost)

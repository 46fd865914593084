"""`CancellableSteps`: runs a thread's steps so that another thread can cancel them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent import futures
from typing import Any

from jflow.base.deadline import Deadline
from jflow.base.values import Array
from jflow.client.runtime.backend import Executable, stop_step
from jflow.client.session.session import Session
from jflow.errors import CancelledError


class CancellableSteps:
    """Runs the steps of one thread in sequence, until another thread cancels them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_cancelled = False
        self._started: futures.Future[list[Array]] | None = None

    def __repr__(self) -> str:
        state = "cancelled" if self._is_cancelled else "running"
        return f"<jflow.client.session.CancellableSteps {state}>"

    def run(self, session: Session, fetches: Any) -> Any:
        """Like `Session.run`, but can be cancelled.

        Raises:
          CancelledError: if it is cancelled; the step then may have been applied in part.
          UnimplementedError: if the step calls Python and runs on a cluster.
          OpError, RuntimeError: as `Session.run`.
        """
        return session._run_by(self._run, fetches)

    def cancel(self, patience_s: float) -> None:
        """Refuses further steps, and cancels the running one if it has not ended in `patience_s`.

        Args:
          patience_s: how long the running step may take to end, in seconds.
        """
        with self._lock:
            self._is_cancelled = True
            started = self._started
        if started is not None:
            futures.wait([started], patience_s)
            stop_step(started)

    def _run(
        self, executable: Executable, feeds: Sequence[Array], deadline: Deadline
    ) -> list[Array]:
        executable.prepare(deadline)  # not under the lock, because it may take long
        with self._lock:
            if self._is_cancelled:
                raise CancelledError("Step was cancelled before it began")
            started = self._started = executable.start(feeds, deadline)
        try:
            return started.result()
        except futures.CancelledError:
            raise CancelledError("Step was cancelled") from None

"""`Looks`: looks at a cluster again and again, as long as it has viewers."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import asdict

from jflow.base.cluster import Task
from jflow.base.handles import Closing
from jflow.base.text import seconds_text
from jflow.cli.dashboard.collector import KINDS, Collector, State
from jflow.cli.timeline import next_steps
from jflow.cli.watcher import Watcher
from jflow.errors import DeadlineExceededError, OpError
from jflow.plan.trace.samples import combined
from jflow.state.watch import CoordinatorStatus, StatusRequest
from jflow.view.sampled import step_picture
from jflow.view.timeline import timeline

IDLE_S = 10.0
"""The time between two looks while there is no viewer, in seconds."""
COORDINATORS_S = 1.0
"""How often coordinators are listed at most, in seconds: they publish no more often."""
_PAGE = 100
"""How many variables a request of the page returns at most."""
_WATCHED_S = 15.0
"""For how long after its last request a viewer counts, in seconds."""


class Looks(Closing):
    """Looks at a cluster on a thread of its own, and asks it for more at once.

    Args:
      targets: servers of the cluster.
      seconds: how long a server or a task has to answer.
      interval_s: the time between two looks while there are viewers.
    """

    def __init__(self, targets: Sequence[str], seconds: float, interval_s: float) -> None:
        self._watcher = Watcher(targets, seconds)
        self._questions = Watcher(targets, seconds)
        self._seconds = seconds
        self._question_lock = threading.Lock()
        self._interval_s = interval_s
        self._collector = Collector()
        self._watched_at = 0.0
        self._woken = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._look, name="jflow dashboard", daemon=True)
        self._thread.start()

    def state(self) -> State:
        """Returns what was seen last, and goes on looking for a while."""
        was_idle = time.monotonic() > self._watched_at + _WATCHED_S
        self._watched_at = time.monotonic()
        if was_idle:
            self._woken.set()
        return self._collector.state

    def variables(self, task: str, first: int) -> Mapping[str, Any]:
        """Returns a page of the variables of a task.

        Raises:
          ValueError: if there is no such task.
          OpError: if the task does not answer.
        """
        with self._question_lock:
            request = StatusRequest(("variables",), first=first, limit=_PAGE)
            (seen,) = self._questions.page(request, [Task.parse(task)])
        if seen.status is None:
            return {"total": 0, "first": first, "variables": [], "error": seen.report.reason}
        items = [asdict(item) for item in seen.items("variables")]
        total = seen.status.totals["variables"]
        return {"total": total, "first": first, "variables": items, "error": ""}

    def next_step(self, wait_s: float) -> Mapping[str, Any]:
        """Returns pictures of the next step that ends: where its operations are, and when they ran.

        Raises:
          OpError: if none ends in time.
        """
        with self._question_lock:
            reports = [one.report for one in self._questions.inspect(()) if one.is_up]
        steps = next_steps(reports, 1, wait_s, self._seconds)
        if not steps:
            raise DeadlineExceededError(f"no step ended in {wait_s:g} s")
        trace = combined(steps)
        tasks = ", ".join(dict.fromkeys(record.task for record in steps[0].records))
        return {
            "what": f"a step on {tasks} took {seconds_text(trace.seconds)}",
            "plan": step_picture(steps[0]),
            "timeline": timeline(trace),
        }

    def close(self) -> None:
        """Ends the looks and the connections."""
        self._is_closed = True
        self._woken.set()
        self._thread.join()
        self._watcher.close()
        self._questions.close()

    def _leave(self, failed: bool) -> None:
        self.close()

    def _look(self) -> None:
        coordinators: Sequence[tuple[Task, CoordinatorStatus]] = ()
        listed_at = -COORDINATORS_S
        while not self._is_closed:
            try:
                seen = self._watcher.inspect(KINDS)
                if time.monotonic() >= listed_at + COORDINATORS_S:
                    coordinators, listed_at = self._watcher.coordinators(), time.monotonic()
                self._collector.observe(seen, time.time(), coordinators)
            except OpError as error:
                self._collector.fail(error.message, time.time())
            is_watched = time.monotonic() < self._watched_at + _WATCHED_S
            self._woken.wait(self._interval_s if is_watched else IDLE_S)
            self._woken.clear()

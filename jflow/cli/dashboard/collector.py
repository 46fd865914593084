"""`Collector`: what the live page shows, as data, from one look at a cluster after the other.

It is read from the snapshots of all tasks, so that any number of viewers cost their cluster the
same, and it knows no network: `observe` takes a snapshot, `state` returns what is to be shown.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import asdict

from jflow.base.cluster import Task
from jflow.cli.listing import container_text, wait_text
from jflow.cli.status import doing_text
from jflow.cli.top import TaskRates
from jflow.cli.watcher import Seen
from jflow.state.watch import CoordinatorStatus

KINDS = ("containers", "queues", "sessions", "steps", "pending")
"""What a look at a cluster lists, all but what may be very much."""

N_EVENTS = 200
"""How many of the last events are kept."""
N_LOOKS = 10
"""Over how many looks is averaged how many steps wait for a task."""
N_RATES = 120
"""How many of the last rates of steps are kept."""

State = Mapping[str, Any]


class Collector:
    """Makes the state of the page from snapshots of a cluster."""

    def __init__(self) -> None:
        self._rates = TaskRates()
        self._known = _Known()
        self._events: deque[Mapping[str, Any]] = deque(maxlen=N_EVENTS)
        self._throughput: deque[float] = deque(maxlen=N_RATES)
        self._waited: deque[Counter[str]] = deque(maxlen=N_LOOKS)
        self._state: State = {"tasks": [], "error": "the cluster has not answered yet"}

    @property
    def state(self) -> State:
        """What the page shows, as JSON data."""
        return self._state

    def fail(self, message: str, at: float) -> None:
        """Notes that no server of the cluster answers.

        Args:
          message: why.
          at: the time, in seconds since 1970.
        """
        if self._state.get("error") != message:
            self._events.appendleft({"at": at, "what": message})
        self._state = {**self._state, "error": message, "events": [*self._events]}

    def observe(
        self,
        seen: Sequence[Seen],
        at: float,
        coordinators: Sequence[tuple[Task, CoordinatorStatus]] = (),
    ) -> None:
        """Takes a snapshot of all tasks, with the items of `KINDS`.

        Args:
          seen: the tasks.
          at: the time, in seconds since 1970.
          coordinators: each with the task that it publishes its status to.
        """
        rows = {row["name"]: row for row in self._rates.rows(seen)}
        self._waited.append(_waited_for(seen))
        waited = sum(self._waited, Counter[str]())
        tasks = []
        for one in seen:
            row = rows[str(one.report.task)]
            row |= {"address": one.report.address, "reason": one.report.reason}
            row["waited_for"] = waited[row["name"]] / len(self._waited)
            row["uptime_s"] = None if one.status is None else one.status.uptime_s
            row["version"] = None if one.status is None else one.status.version
            tasks.append(row)
        self._throughput.append(sum(row["steps_per_s"] or 0.0 for row in tasks))
        for what in self._known.changes(seen):
            self._events.appendleft({"at": at, "what": what})
        self._state = {
            "at": at,
            "error": "",
            "tasks": tasks,
            "containers": _listed(seen, "containers"),
            "coordinators": [{"task": str(task), **asdict(one)} for task, one in coordinators],
            "queues": _listed(seen, "queues"),
            "sessions": _listed(seen, "sessions"),
            "steps": _steps(seen),
            "throughput": [round(rate, 1) for rate in self._throughput],
            "events": [*self._events],
        }


def _listed(seen: Sequence[Seen], kind: str) -> list[dict[str, Any]]:
    return [item for one in seen for item in one.listed(kind)]


def _steps(seen: Sequence[Seen]) -> list[dict[str, Any]]:
    """Returns the running steps, the oldest first, each with its waits on all tasks."""
    steps: dict[str, dict[str, Any]] = {}
    for one in seen:
        for item in one.items("steps"):
            step = steps.setdefault(
                item.step,
                {"step": item.step, "age_s": 0.0, "master": item.master, "tasks": [], "waits": []},
            )
            step["age_s"] = max(step["age_s"], item.age_s)
            step["tasks"].append(str(one.report.task))
            if item.abandoned_s is not None:
                step["waits"].append({"task": str(one.report.task), "what": doing_text(item)})
        for wait in one.items("pending"):
            if wait.cause and wait.step in steps:
                what = {"task": str(one.report.task), "what": wait_text(wait)}
                steps[wait.step]["waits"].append(what)
    return sorted(steps.values(), key=lambda step: -step["age_s"])


def _waited_for(seen: Sequence[Seen]) -> Counter[str]:
    """Returns for each task how many waits of steps on other tasks are for a value of it."""
    waited: Counter[str] = Counter()
    for one in seen:
        for wait in one.items("pending"):
            source = wait.device.partition("/device:")[0]
            if wait.edge is not None and source != str(one.report.task):
                waited[source] += 1
    return waited


class _Known:
    """What was seen last, to tell what has changed."""

    def __init__(self) -> None:
        self._tasks: dict[str, tuple[str, int]] = {}
        self._sessions: set[tuple[str, int, int]] = set()
        self._containers: set[str] = set()
        self._closed: set[tuple[str, str]] = set()
        self._is_first = True

    def changes(self, seen: Sequence[Seen]) -> Iterable[str]:
        """Returns what has changed since the last snapshot, as sentences."""
        found = [
            *self._task_changes(seen),
            *self._session_changes(seen),
            *self._container_changes(seen),
            *self._queue_changes(seen),
        ]
        is_first, self._is_first = self._is_first, False
        return [f"the cluster has {len(seen)} tasks"] if is_first else found

    def _task_changes(self, seen: Sequence[Seen]) -> Iterable[str]:
        for one in seen:
            name, state = str(one.report.task), one.report.state.value
            life = 0 if one.status is None else one.status.incarnation
            former_state, former_life = self._tasks.get(name, (state, life))
            if state != former_state:
                reason = f": {one.report.reason}" if one.report.reason else ""
                yield f"{name} is {state}{reason}"
            if life and former_life and life != former_life:
                yield f"{name} has restarted: what it held is lost"
            self._tasks[name] = state, life or former_life

    def _session_changes(self, seen: Sequence[Seen]) -> Iterable[str]:
        up = {str(one.report.task) for one in seen if one.is_up}
        present = {
            (str(one.report.task), one.status.incarnation, item.number)
            for one in seen
            if one.status is not None
            for item in one.items("sessions")
        }
        for key in present - self._sessions:
            yield f"session {key[2]} of {key[0]} was opened"
        gone = {key for key in self._sessions - present if key[0] in up}
        for task, _, number in sorted(gone):
            yield f"session {number} of {task} has ended"
        # Those of a task that does not answer may still be there.
        self._sessions = (self._sessions - gone) | present

    def _container_changes(self, seen: Sequence[Seen]) -> Iterable[str]:
        present = {item.name for one in seen for item in one.items("containers")}
        for name in sorted(present - self._containers):
            yield f"container {container_text(name)} has state"
        if all(one.is_up for one in seen):
            for name in sorted(self._containers - present):
                yield f"container {container_text(name)} is empty"
            self._containers = present
        self._containers |= present

    def _queue_changes(self, seen: Sequence[Seen]) -> Iterable[str]:
        closed = {
            (item.container, item.name)
            for one in seen
            for item in one.items("queues")
            if item.is_closed
        }
        for container, name in sorted(closed - self._closed):
            yield f"queue {name} (container {container_text(container)}) was closed"
        self._closed = closed

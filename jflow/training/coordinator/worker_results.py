"""`WorkerResults`: results that workers keep, as the engine handles them.

The scheduler knows where they are (`result_locations.py`). This brings them here when they are
wanted, computes them again if they were lost, and frees them when the program has dropped their
`RemoteValue`s.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from queue import SimpleQueue
from typing import Any, Protocol

from jflow.base.cluster import Task
from jflow.compiler.graph import ResourceRef
from jflow.errors import CancelledError, UnavailableError
from jflow.training.coordinator.closures import Recipe, ScheduledClosure
from jflow.training.coordinator.events import Action, Dispatch, Keeping, WorkerIndex
from jflow.training.coordinator.layout import AttemptLayout
from jflow.training.coordinator.metrics import Meter
from jflow.training.coordinator.remote_value import RemoteValue
from jflow.training.coordinator.result_locations import ResultLocations
from jflow.training.coordinator.scheduler import ClosureScheduler
from jflow.training.parameter_servers.roles import WORKER_JOB

FetchCallback = Callable[[Sequence[Any] | BaseException], None]
"""Takes the leaves of a result, or the error in their place."""


class WorkerTable(Protocol):
    """The interface of a worker's result table.

    Attributes:
      task: its task.
      table: what has them; None while it is not connected.
    """

    task: Task
    table: ResourceRef | None

    def fetch(self, number: int, avals: tuple[Any, ...], callback: FetchCallback) -> None:
        """Reads a result of these types, without waiting."""

    def free(self, numbers: Sequence[int]) -> None:
        """Frees results, without waiting."""


class WorkerResults:
    """Handles results that workers store, for the engine.

    Args:
      scheduler: knows where they are.
      link: returns a worker; None if it has left.
      apply_event: gives the scheduler an event.
      meter: records how long `RemoteValue`s have waited.
      lock: that of the scheduler.

    Attributes:
      meter: as given.
    """

    def __init__(
        self,
        scheduler: ClosureScheduler,
        link: Callable[[WorkerIndex], WorkerTable | None],
        apply_event: Callable[[Callable[[float], list[Action]]], None],
        meter: Meter,
        lock: AbstractContextManager[Any],
    ) -> None:
        self._scheduler, self._link, self._apply_event = scheduler, link, apply_event
        self.meter, self._lock = meter, lock
        self._values: weakref.WeakValueDictionary[int, RemoteValue] = weakref.WeakValueDictionary()
        self._recipes: dict[int, Recipe] = {}
        # Filled while garbage is collected, on any thread, so nothing but this may happen there.
        self._dropped: SimpleQueue[int] = SimpleQueue()

    @property
    def locations(self) -> ResultLocations:
        """The workers that store results."""
        return self._scheduler.locations

    def cancel(self, number: int) -> None:
        """Cancels a closure for its user."""
        self._apply_event(lambda now: self._scheduler.cancel(number, now))

    def layout(
        self, action: Dispatch, closure: ScheduledClosure
    ) -> tuple[AttemptLayout, tuple[int, ...]]:
        """Returns where an attempt reads its inputs and stores its result.

        Returns:
          The layout, and the closures of the inputs that are read from workers.

        Raises:
          UnavailableError: if one of the workers is not connected.
        """
        placed = closure.placed(dict(action.places))
        inputs = tuple((indices, self._table(worker)) for indices, _, worker in placed)
        is_on_worker = closure.keeping is not Keeping.NOT
        table = self._table(action.worker) if is_on_worker else None
        layout = AttemptLayout(inputs, closure.keeping, table)
        return layout, tuple(number for _, number, _ in placed)

    def _table(self, worker: WorkerIndex) -> ResourceRef:
        link = self._link(worker)
        if link is None or link.table is None:
            task = Task(WORKER_JOB, worker) if link is None else link.task
            raise UnavailableError(f"{task} was lost with its results", task=str(task))
        return link.table

    def add(self, value: RemoteValue, recipe: Recipe | None) -> None:
        """Records a result that its worker stores.

        Args:
          value: the result.
          recipe: what computes it again; None if it is here as well.
        """
        number = value.number
        weakref.finalize(value, self._dropped.put, number).atexit = False
        if recipe is not None:
            self._recipes[number] = recipe
            self._values[number] = value
            value.keep()

    def reopened(self, number: int) -> ScheduledClosure:
        """Returns the closure of a result that is recomputed."""
        recipe, value = self._recipes[number], self._values.get(number)
        if value is None:  # dropped since it was wanted
            call = recipe.arguments.call
            avals = tuple(call.run.jaxpr.out_avals)
            value = RemoteValue(number, None, "dropped", call.out_tree, avals, self)
        return recipe.closure(value)

    def ended(self, number: int) -> None:
        """Records that a result, or an error in its place, has arrived."""
        self._recipes.pop(number, None)
        self._values.pop(number, None)

    def fetch(self, number: int) -> None:
        """Brings a result here; if it was lost, it is computed again."""
        value, worker = self._values.get(number), self.locations.place(number)
        link = None if worker is None else self._link(worker)
        if value is None:
            return
        if link is None:
            self.report_lost(number)
            self._apply_event(lambda now: self._scheduler.want(number, now))
            return

        def callback(answer: Sequence[Any] | BaseException) -> None:
            if isinstance(answer, BaseException):
                self.report_lost(number)
                self._apply_event(lambda now: self._scheduler.want(number, now))
                return
            value.succeed([*answer])
            self._apply_event(lambda now: self._scheduler.result_read(number, now))
            with self._lock:
                runs_again = number in self._scheduler.closures
            if not runs_again:
                self.ended(number)

        link.fetch(number, value.avals, callback)

    def report_lost(self, *numbers: int) -> None:
        """Reports results that could not be read from their worker."""
        for number in numbers:
            worker = self.locations.place(number)
            link = None if worker is None else self._link(worker)
            if link is not None:
                link.free([number])
        self._apply_event(lambda now: self._scheduler.results_lost(numbers, now))

    def is_lost(self, number: int) -> bool:
        """Returns whether a result was lost with its worker."""
        return self.locations.lost_closure(number) is not None

    def unwanted(self, closure: ScheduledClosure, worker: WorkerIndex) -> None:
        """Frees the result of an attempt that ended, unless it is the one that counts."""
        number, link = closure.remote_value.number, self._link(worker)
        if closure.keeping is Keeping.NOT or self.locations.place(number) == worker:
            return
        if link is not None:
            link.free([number])

    def free_dropped(self) -> None:
        """Frees the results whose `RemoteValue`s the program has dropped."""
        by_worker: defaultdict[WorkerIndex, list[int]] = defaultdict(list)
        for _ in range(self._dropped.qsize()):  # the clock's thread alone takes them
            number = self._dropped.get()
            with self._lock:
                if number in self._scheduler.closures:
                    self._dropped.put(number)  # it runs again, and nothing waits for it any more
                    continue
                worker = self.locations.forget(number)
            self.ended(number)
            if worker is not None:
                by_worker[worker].append(number)
        for worker, numbers in by_worker.items():
            link = self._link(worker)
            if link is not None:
                link.free(numbers)

    def close(self) -> None:
        """Ends the coordinator's access: results that were not fetched are gone."""
        for number, value in list(self._values.items()):
            self.ended(number)
            if not value.is_here:
                value.fail(
                    CancelledError(
                        f"{value.name} has a result that was on a worker when the coordinator was "
                        "closed; fetch it before"
                    )
                )

"""`ActionExecutor`: what each action of the scheduler does, on links and to results."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from jflow.errors import UnavailableError
from jflow.state.effects import Effect
from jflow.training.coordinator.closures import ScheduledClosure
from jflow.training.coordinator.events import (
    Action,
    CancelAttempt,
    Complete,
    Dispatch,
    Drop,
    Expire,
    FailClosure,
    FailInput,
    Forget,
    Keeping,
    PrepareBatch,
    Reopen,
)
from jflow.training.coordinator.link import LinkEvents, WorkerLink
from jflow.training.coordinator.link_attempt import LinkAttempt
from jflow.training.coordinator.losses import cancelled
from jflow.training.coordinator.scheduler import ClosureScheduler
from jflow.training.coordinator.worker_results import WorkerResults

_LOG = logging.getLogger(__name__)


class ActionQueue:
    """Actions that were decided but not carried out yet.

    They are decided under a lock and carried out outside of it, in the order in which they were
    decided.

    Args:
      changed: the lock, which is notified when nothing is left to do.
      carry_out: carries out one action; no two run at a time.
    """

    def __init__(
        self, changed: threading.Condition, carry_out: Callable[[Action | Forget], None]
    ) -> None:
        self._changed = changed
        self._carry_out = carry_out
        self._actions: deque[Action | Forget] = deque()
        self._is_acting = False

    @property
    def is_quiet(self) -> bool:
        """Whether the queue is empty and no action is being carried out; the lock must be held."""
        return not self._actions and not self._is_acting

    def add(self, actions: Iterable[Action | Forget]) -> None:
        """Adds actions, which `act` carries out; the lock must be held."""
        self._actions += actions

    def apply_event(self, event: Callable[[float], Iterable[Action]]) -> None:
        """Gives the scheduler an event with the time, and carries out the resulting actions."""
        with self._changed:
            self._actions += event(time.monotonic())
        self.act()

    def act(self) -> None:
        """Carries out the actions, unless another thread is doing so."""
        with self._changed:
            if self._is_acting:
                return
            self._is_acting = True
        while True:
            with self._changed:
                if not self._actions:
                    self._is_acting = False
                    self._changed.notify_all()
                    return
                actions, self._actions = self._actions, deque()
            for action in actions:
                try:
                    self._carry_out(action)
                except Exception:  # of one action; the others have to be carried out
                    _LOG.exception("an internal error of the coordinator at %s", action)


class ActionExecutor:
    """Carries out the actions of the scheduler, one at a time (`ActionQueue`).

    The closures that have not ended are here from `add`, the attempts from their dispatch until
    they are forgotten.

    Args:
      scheduler: decides the actions.
      links: the workers.
      results: the results that workers keep.
      client: the name and epoch under which effects are recorded.
      events: takes the failure of an attempt that cannot be dispatched.
      ended: is called when a closure ends, with how, as a counter of `Meter`; and with the error
        of one that has failed.
    """

    def __init__(
        self,
        scheduler: ClosureScheduler,
        links: Mapping[int, WorkerLink],
        results: WorkerResults,
        client: tuple[str, int],
        events: LinkEvents,
        ended: Callable[[str, BaseException | None], None],
    ) -> None:
        self._scheduler, self._links, self._results = scheduler, links, results
        self._client, self._events, self._notify_ended = client, events, ended
        self._closures: dict[int, ScheduledClosure] = {}
        self._attempts: dict[int, LinkAttempt] = {}

    def add(self, closure: ScheduledClosure) -> None:
        """Takes a closure, before the scheduler does."""
        self._closures[closure.remote_value.number] = closure

    def forget(self, attempt: int) -> None:
        """Drops an attempt that has come back, unless that is done already."""
        self._attempts.pop(attempt, None)

    def carry_out(self, action: Action | Forget) -> None:
        """Carries out one action."""
        match action:
            case Dispatch():
                self._dispatch(action)
            case Complete(number, attempt, position):
                self._complete(number, self._attempts[attempt], position)
            case Forget(number):
                self.forget(number)
            case CancelAttempt(number):
                self._cancel(number)
            case FailClosure(number, error):
                self._fail(number, error)
            case Expire(number):
                self._expire(number)
            case FailInput(number, source):
                self._fail_input(number, source)
            case Drop(number, by_user):
                self._drop(number, by_user=by_user)
            case PrepareBatch(worker, number):
                self._prepare_batch(worker, number)
            case Reopen(number):
                self._closures[number] = self._results.reopened(number)

    # Attempts -----------------------------------------------------------------------------------

    def _dispatch(self, action: Dispatch) -> None:
        closures = [self._closures[number] for number in action.closures]
        attempt = LinkAttempt(action.attempt, closures, self._effect(action, closures[0]))
        self._attempts[action.attempt] = attempt
        if action.places or closures[0].keeping is not Keeping.NOT:
            try:
                attempt.layout, attempt.elsewhere = self._results.layout(action, closures[0])
            except UnavailableError as error:
                self._events.failed(action.worker, attempt, error)
                return
        self._links[action.worker].dispatch(attempt)

    def _effect(self, action: Dispatch, closure: ScheduledClosure) -> Effect | None:
        if not closure.is_exactly_once:
            return None
        n_ended = self._scheduler.closures.n_ended
        return Effect(*self._client, action.closures[0], action.ordinal, n_ended)

    def _cancel(self, number: int) -> None:
        if number in self._attempts:
            self._attempts[number].cancel()

    def _prepare_batch(self, worker: int, number: int) -> None:
        if number in self._closures and worker in self._links:
            self._links[worker].prepare_batch(self._closures[number])

    # Closures -----------------------------------------------------------------------------------

    def _complete(self, number: int, attempt: LinkAttempt, position: int) -> None:
        closure = self._ended(number, "succeeded")
        value, keeping = closure.remote_value, closure.keeping
        if keeping is Keeping.ALONE:
            self._results.add(value, closure.recipe(attempt.elements))
            return
        if keeping is Keeping.COPY:
            self._results.add(value, None)
        value.succeed(attempt.results_at(position, len(value.avals)))

    def _fail(self, number: int, error: BaseException) -> None:
        self._ended(number, "failed", error).remote_value.fail(error)

    def _expire(self, number: int) -> None:
        closure = self._closures[number]
        self._fail(number, closure.deadline.error(f"running {closure.name}"))

    def _fail_input(self, number: int, source: int) -> None:
        inputs = self._closures[number].inputs
        value = next(value for value in inputs if value.number == source)
        self._fail(number, value.input_error())

    def _drop(self, number: int, *, by_user: bool) -> None:
        closure = self._ended(number, "cancelled")
        closure.remote_value.fail(cancelled(closure.name, by_user=by_user))

    def _ended(self, number: int, how: str, error: BaseException | None = None) -> ScheduledClosure:
        self._notify_ended(how, error)
        self._results.ended(number)
        return self._closures.pop(number)

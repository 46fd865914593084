"""The engine of a coordinator: gives the scheduler events, at the times of a clock.

Events come from any thread: that of the program, those of links and of the recovery, and a clock's.
Each is given to the scheduler under one lock. The actions that follow are carried out in the order
in which they were decided, without the lock (`executor.py`).
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable
from functools import partial
from time import perf_counter
from typing import Any

from jflow.base.cluster import Task
from jflow.base.deadline import Deadline
from jflow.base.deadline.notices import WaitNotice
from jflow.client.functions import Connection
from jflow.errors import FencedError, OpError, UnavailableError
from jflow.state.effects import ConflictError, SupersededError
from jflow.state.watch import CoordinatorStatus, WorkerClosures
from jflow.training.coordinator.closures import ScheduledClosure
from jflow.training.coordinator.events import Action, Closure, Forget
from jflow.training.coordinator.executor import ActionExecutor, ActionQueue
from jflow.training.coordinator.link import WorkerLink
from jflow.training.coordinator.link_attempt import LinkAttempt
from jflow.training.coordinator.losses import (
    LossKind,
    is_input_lost,
    is_rolled_back,
    loss_of,
    unavailable,
)
from jflow.training.coordinator.metrics import Meter, Watchdog
from jflow.training.coordinator.per_worker import PerWorkerIterator
from jflow.training.coordinator.recovery import Recovery, RecoveryOptions
from jflow.training.coordinator.scheduler import ClosureScheduler
from jflow.training.coordinator.worker_results import WorkerResults

_LOG = logging.getLogger(__name__)

MAX_OPEN = 262_144
"""How many closures may be open before `schedule` waits."""

_TICK_S = 0.1


class Engine:
    """Runs closures on workers; `ClusterCoordinator` is its public interface.

    Args:
      tasks: the workers.
      connect: opens a connection to a worker.
      prepare_worker: makes on a worker what it has to have.
      watchdog_s: after how many seconds without an ended closure the stacks of all threads are
        logged; None for never.
      options: what happens when parameter servers are lost, and what is claimed.

    Attributes:
      closed: set by `close`.
      iterators: what is made anew for a worker that returns.
      results: the results that workers keep.
    """

    def __init__(
        self,
        tasks: Iterable[Task],
        connect: Callable[[Task], Connection],
        prepare_worker: Callable[[Task], None],
        watchdog_s: float | None,
        options: RecoveryOptions,
    ) -> None:
        self.meter = Meter()
        self.changed = threading.Condition()
        self._connect, self._prepare_worker = connect, prepare_worker
        self._watchdog = Watchdog(watchdog_s)
        self._claim, self._servers = options.claim, options.servers
        self.recovery = Recovery(options.restorer, self, restores=options.restores)
        self._may_connect = threading.Event()
        self._may_connect.set()
        self._fence: FencedError | None = None
        self._scheduler = ClosureScheduler()
        self._links: dict[int, WorkerLink] = {}
        self.results = WorkerResults(
            self._scheduler, self._links.get, self._apply_event, self.meter, self.changed
        )
        client = options.claim or (secrets.token_hex(8), 0)
        self._executor = ActionExecutor(
            self._scheduler, self._links, self.results, client, self, self._closure_ended
        )
        self._actions = ActionQueue(self.changed, self._executor.carry_out)
        self._error: BaseException | None = None
        self._is_reporting = False
        self._n_joining = self._numbers = 0
        self.closed = threading.Event()
        self.iterators: weakref.WeakSet[PerWorkerIterator] = weakref.WeakSet()
        for task in tasks:
            self.add_worker(task)
        self._ticker = threading.Thread(target=self._tick, name="jflow coordinator", daemon=True)
        self._ticker.start()

    # Events of the program: closures ------------------------------------------------------------

    def add(
        self,
        make: Callable[[int], ScheduledClosure],
        *,
        priority: int,
        worker: int | None,
        timeout: float | None,
        is_repeatable: bool,
    ) -> ScheduledClosure:
        """Adds a closure; blocks while too many are open, or while `join` waits.

        Args:
          make: makes the closure of a number.
          priority, worker, timeout, is_repeatable: see `events.Closure`.

        Raises:
          Exception: the first error of closures that was not reported.
        """
        while True:
            self.raise_error()
            with self.changed:
                self.changed.wait_for(self._may_add)
                if self._error is not None:
                    continue
                self._check_worker(worker)
                number = self._numbers
                self._numbers += 1
                closure = make(number)
                self._executor.add(closure)
                now = time.monotonic()
                scheduled = Closure(
                    number,
                    kind=closure.kind,
                    priority=priority,
                    worker=worker,
                    expires=None if timeout is None else now + timeout,
                    inputs=tuple([value.number for value in closure.inputs]),
                    is_exactly_once=closure.is_exactly_once,
                    is_repeatable=is_repeatable,
                    batch_size=closure.batch_size,
                    needs_latest=closure.program.needs_latest,
                    keeping=closure.keeping,
                )
                actions = self._scheduler.add(scheduled, now)
                self._actions.add(actions)
                break
        self.meter.count("scheduled")
        if actions:
            self._actions.act()
        return closure

    def _may_add(self) -> bool:
        is_full = self._n_joining or len(self._scheduler.closures) >= MAX_OPEN
        return not is_full or self._error is not None

    def is_done(self) -> bool:
        """Returns whether no closure is open. Raises as `add`."""
        self.raise_error()
        with self.changed:
            return self._is_quiet()

    def join(self, timeout: float | None, show: Callable[[int], None] | None) -> None:
        """Waits until no closure is open; see `ClusterCoordinator.join`."""
        deadline, notice = Deadline(timeout), WaitNotice(self._open_text)
        with self.changed:
            self._n_joining += 1
            try:
                while not self._is_quiet() and self._error is None:
                    if (left := deadline.remaining()) == 0:
                        raise deadline.error(f"waiting {self._open_text()}")
                    if show is not None:
                        show(len(self._scheduler.closures))
                    self.changed.wait(notice.pause(left if show is None else min(left or 0.5, 0.5)))
                    notice.tell()
            finally:
                self._n_joining -= 1
                self.changed.notify_all()
        self.raise_error()

    def raise_error(self) -> None:
        """Raises the first error of closures once, when nothing is running any more."""
        if self._error is None and not self._is_reporting:
            return
        with self.changed:
            self.changed.wait_for(lambda: not self._is_reporting)
            if self._error is None:
                return
            self._is_reporting = True
            self._actions.add(self._scheduler.cancel_all())
        self._actions.act()
        with self.changed:
            self.changed.wait_for(self._is_quiet)
            # Nothing can be done any more once another coordinator has taken over.
            error, self._error = self._error, self._fence
            self._scheduler.clear()
            self._is_reporting = False
            self.changed.notify_all()
        raise error

    def _open_text(self) -> str:
        """Describes what `join` waits for, such as "for 5 closures, of which 2 run"."""
        n_open, n_running = len(self._scheduler.closures), len(self._scheduler.attempts)
        return f"for {n_open} closures, of which {n_running} run"

    def numbers(self) -> tuple[int, int]:
        """Returns the number of closures that wait, and of attempts that run."""
        with self.changed:
            return self._scheduler.closures.n_queued, len(self._scheduler.attempts)

    def status(self, name: str) -> CoordinatorStatus:
        """Returns what watchers of the cluster see of the coordinator."""
        queued, running = self.numbers()
        metrics = self.meter.metrics(queued, running)
        with self.changed:
            counts = self._scheduler.attempts.n_by_worker()
            workers = tuple(
                WorkerClosures(
                    str(link.task), counts.get(index, 0), not self._scheduler.workers.is_up(index)
                )
                for index, link in sorted(self._links.items())
            )
        return CoordinatorStatus(
            name,
            metrics.queued,
            metrics.running,
            metrics.succeeded,
            metrics.failed,
            metrics.cancelled,
            metrics.put_back,
            workers,
        )

    def _is_quiet(self) -> bool:
        return self._scheduler.is_idle and self._actions.is_quiet

    # Events of the program: workers -------------------------------------------------------------

    def add_worker(self, task: Task) -> None:
        """Adds a worker."""
        link = WorkerLink(task, partial(self._connect, task), self)
        with self.changed:
            self._scheduler.add_worker(task.index)
            self._links[task.index] = link
        link.start()

    def remove_worker(self, index: int, timeout: float | None = None) -> None:
        """Removes a worker once it has finished its attempts."""
        self._check_worker(index)
        task = self._links[index].task
        error = UnavailableError(f"{task} has left, and the closure may run on no other worker")
        self._apply_event(lambda now: self._scheduler.worker_leaves(index, error, now))
        deadline = Deadline(timeout)
        with self.changed:
            if not self.changed.wait_for(lambda: self._scheduler.workers.is_free(index), timeout):
                raise deadline.error(f"waiting for closures on {task}")
            link = self._links.pop(index, None)
        if link is None:
            return  # another thread has removed it meanwhile
        self._disconnect(link)
        link.close()

    def replace_servers(self, servers: Collection[Task]) -> None:
        """Takes the present parameter servers, whose loss is one of variables."""
        self._servers = tuple(servers)

    def workers(self) -> list[int]:
        """Returns the indices of the workers, including those that are leaving."""
        with self.changed:
            return sorted(self._links)

    def close(self) -> None:
        """Ends all threads and connections, and cancels open closures."""
        self.closed.set()
        self._may_connect.set()
        self.recovery.close()
        for link in list(self._links.values()):
            link.close()
        with self.changed:
            self._actions.add(self._scheduler.cancel_all())
            for index in list(self._links):
                self._actions.add(self._scheduler.worker_down(index, time.monotonic()))
            self._actions.add(self._scheduler.cancel_all())
        self._actions.act()
        self.results.close()

    def _check_worker(self, worker: int | None) -> None:
        if worker is not None and worker not in self._links:
            raise ValueError(f"there is no worker {worker}; there are {sorted(self._links)}")

    # Events of links ----------------------------------------------------------------------------

    def connected(self, worker: int, seconds: float) -> None:
        """See `LinkEvents`."""
        self.meter.note("worker_connecting", seconds)
        self._apply_event(lambda now: self._scheduler.worker_up(worker, now))

    def batch_ready(self, worker: int, kind: Any) -> None:
        """See `LinkEvents`."""
        self._apply_event(lambda now: self._scheduler.batch_ready(worker, kind, now))

    def rebuild(self, worker: int) -> None:
        """See `LinkEvents`."""
        self._may_connect.wait()
        link = self._links.get(worker)
        if link is None:
            return  # it has left while it was connected to
        self._prepare_worker(link.task)
        for iterator in list(self.iterators):
            iterator.rebuild(worker)

    def introduce(self, connection: Connection) -> None:
        """See `LinkEvents`."""
        if self._claim is not None:
            connection.claim(*self._claim)

    def fenced(self, error: FencedError) -> None:
        """See `LinkEvents`."""
        self._fence = self._fence or error
        self.fail_all(error)

    def lost(self, worker: int, error: BaseException) -> None:
        """See `LinkEvents`."""
        link = self._links.get(worker)
        with self.changed:
            # A closure that fails and the connection that ends may report it at the same time.
            is_known = not self._scheduler.workers.is_up(worker)
            if link is None or is_known or self.closed.is_set():
                return
            self.meter.count("worker_failures")
            self.meter.count("put_back", self._scheduler.attempts.n_only_on(worker))
            self._actions.add(self._scheduler.worker_down(worker, time.monotonic()))
            # After its attempts are lost: those that wait for elements would fail by themselves.
            for iterator in list(self.iterators):
                iterator.abort(worker)
        _LOG.warning("%s was lost; its closures run elsewhere: %s", link.task, error)
        self._actions.act()
        self._disconnect(link)

    def ended(self, worker: int, attempt: LinkAttempt, values: list[Any]) -> None:
        """See `LinkEvents`."""
        assert attempt.concrete is not None
        self.meter.note("closure_execution", perf_counter() - attempt.started)
        try:
            attempt.results = attempt.concrete.host_results(values, attempt.args)
        except Exception as error:
            self.failed(worker, attempt, error)
            return
        self.recovery.succeeded()
        with self.changed:
            now, dispatch_s = time.monotonic(), attempt.dispatch_s
            actions = self._scheduler.finished(attempt.number, now, dispatch_s)
            self._actions.add([*actions, Forget(attempt.number)])
        self._actions.act()
        self.results.unwanted(attempt.closures[0], worker)

    def failed(self, worker: int, attempt: LinkAttempt, error: BaseException) -> None:
        """See `LinkEvents`."""
        if isinstance(error, SupersededError | ConflictError):
            # A later attempt decides, or nothing was done and the closure runs again.
            self._lose_attempt(attempt)
            return
        link = self._links.get(worker)
        if link is None or attempt.number not in self._scheduler.attempts:
            self.fail_attempt(attempt, error)  # too late: its worker was lost before
            return
        self.results.unwanted(attempt.closures[0], worker)
        loss = loss_of(error, link.task, self._servers)
        if attempt.elsewhere and is_input_lost(error, loss, link.task) and not attempt.is_cancelled:
            self.results.report_lost(*attempt.elsewhere)
            self._lose_attempt(attempt)
        elif loss is None:
            self.fail_attempt(attempt, error)
        elif isinstance(error, FencedError):  # loss.kind is LossKind.CLAIM
            self.fenced(error)
            self.fail_attempt(attempt, error)
        elif loss.kind in (LossKind.STATE, LossKind.VALUES) and loss.task is not None:
            self.recovery.report(worker, attempt, error, loss.task)
        elif loss.task == link.task:
            self.lost(worker, error)  # first, so that the worker is not given the closure again
            self._lose_attempt(attempt)
        else:  # it used what another worker had
            self.give_up(worker, attempt, unavailable(error, loss.task))

    def fail_attempt(self, attempt: LinkAttempt, error: BaseException) -> None:
        """See `RecoveryEvents`."""
        error = error if attempt.concrete is None else attempt.concrete.with_origin(error)
        failed = partial(self._scheduler.failed, is_rolled_back=is_rolled_back(error))
        self._apply_event(partial(failed, attempt.number, error))
        self._executor.forget(attempt.number)

    def _lose_attempt(self, attempt: LinkAttempt) -> None:
        self._apply_event(lambda now: self._scheduler.lost(attempt.number, now))
        self._executor.forget(attempt.number)

    def _reconnect(self, worker: int) -> None:
        """Reconnects to a worker, because the connection is to a former life of some task."""
        self._apply_event(lambda now: self._scheduler.worker_down(worker, now))
        if worker in self._links:
            self._disconnect(self._links[worker])

    def _disconnect(self, link: WorkerLink) -> None:
        """Drops a connection, and the programs that read results of its worker."""
        table = link.disconnect()
        for other in list(self._links.values()):
            other.forget(table)

    # Events of the recovery ---------------------------------------------------------------------

    def retry(self, worker: int, attempt: LinkAttempt) -> None:
        """See `RecoveryEvents`."""
        if attempt.number in self._scheduler.attempts:
            self._lose_attempt(attempt)
            self._reconnect(worker)

    def give_up(self, worker: int, attempt: LinkAttempt, error: OpError) -> None:
        """See `RecoveryEvents`."""
        is_running = attempt.number in self._scheduler.attempts
        self.fail_attempt(attempt, error)
        if is_running:
            self._reconnect(worker)

    def fail_all(self, error: OpError) -> None:
        """See `RecoveryEvents`."""
        with self.changed:
            self._error = self._error or error
            self.changed.notify_all()

    def stop_workers(self) -> None:
        """See `RecoveryEvents`."""
        self._may_connect.clear()
        for worker in list(self._links):
            self._reconnect(worker)

    def resume_workers(self) -> None:
        """See `RecoveryEvents`."""
        self._may_connect.set()

    # The clock, and what follows from events ----------------------------------------------------

    def _apply_event(self, event: Callable[[float], list[Action]]) -> None:
        """Passes an event to the scheduler with the present time, and carries out the actions."""
        self._actions.apply_event(event)

    def _closure_ended(self, how: str, error: BaseException | None) -> None:
        """See `ActionExecutor`."""
        self._watchdog.reset()
        self.meter.count(how)
        self._error = self._error or error

    def _tick(self) -> None:
        while not self.closed.wait(_TICK_S):
            for link in list(self._links.values()):
                if link.is_lost:  # attempts say so at once, but it may have none
                    self.lost(link.index, UnavailableError("the connection has ended"))
            self.results.free_dropped()
            if len(self._scheduler.closures):
                self._apply_event(self._scheduler.tick)
                self._watchdog.check(len(self._scheduler.closures))
            else:
                self._watchdog.reset()

"""The connection of a coordinator to one worker: connects, compiles, starts attempts, reconnects.

An attempt whose program is registered is started on the thread that dispatches it; nothing there
blocks. Everything that can block is done on the link's own thread: connecting, making what the
worker needs, compiling and registering programs, waiting for elements of datasets. So one worker
never holds up another.

Attempts take elements of datasets in the order in which they are dispatched: while one of them
waits for its turn or its elements, no later one takes any, so that each worker reads in order.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from time import perf_counter, thread_time
from typing import Any, Protocol

import numpy as np

from jflow.base.cluster import Task
from jflow.base.deadline import FOREVER, backoff
from jflow.client.functions import Concrete, Connection
from jflow.compiler.graph import ResourceRef
from jflow.compiler.placement import DEFAULT_STRATEGY
from jflow.errors import CancelledError, FencedError, OpError, UnavailableError
from jflow.training.coordinator.closures import ScheduledClosure
from jflow.training.coordinator.layout import (
    N_FREED,
    PLAIN,
    AttemptLayout,
    arranged,
    fetching,
    freeing,
    number_of,
    table_of,
)
from jflow.training.coordinator.link_attempt import LinkAttempt
from jflow.training.coordinator.worker_results import FetchCallback
from jflow.training.parameter_servers import bound_to

_LOG = logging.getLogger(__name__)

_WAIT_S = 0.02
"""How long the thread waits for an element of a dataset before it does other work."""

_LONGEST_PAUSE_S = 1.0
_NOTICE_AFTER_S = 30.0


class LinkEvents(Protocol):
    """Callbacks for the events of a link, which may be called on any thread."""

    def connected(self, worker: int, seconds: float) -> None:
        """Called when the worker can run closures, with the time that connecting took."""

    def lost(self, worker: int, error: BaseException) -> None:
        """Called when the worker cannot be reached."""

    def ended(self, worker: int, attempt: LinkAttempt, values: list[Any]) -> None:
        """Called when an attempt succeeded."""

    def failed(self, worker: int, attempt: LinkAttempt, error: BaseException) -> None:
        """Called when an attempt failed or was cancelled."""

    def batch_ready(self, worker: int, kind: Any) -> None:
        """Called when batches of a program are registered."""

    def introduce(self, connection: Connection) -> None:
        """Registers the coordinator's claim on a new connection, before its first use."""

    def fenced(self, error: FencedError) -> None:
        """Called when another coordinator has taken over."""

    def rebuild(self, worker: int) -> None:
        """Recreates what closures need on the worker, such as iterators of datasets."""


class WorkerLink:
    """The connection to a worker, and the thread for calls that may block.

    Args:
      task: the worker.
      connect: opens a connection to it.
      events: takes what happens to it.

    Attributes:
      task, index: the worker, and its index.
      table: what keeps results on the worker as long as the present connection; None without one.
    """

    def __init__(self, task: Task, connect: Callable[[], Connection], events: LinkEvents) -> None:
        self.task, self.index = task, task.index
        self._connect = connect
        self._events = events
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._taking: list[tuple[Connection, LinkAttempt]] = []
        self._connection: Connection | None = None
        # Attempts may fail over each new connection to a worker, as one that is stuck refuses them.
        self._pauses: Iterator[float] | None = None
        self._concretes: dict[tuple[int, int, AttemptLayout], Concrete] = {}
        self._reads: dict[Any, Concrete] = {}
        self.table: ResourceRef | None = None
        name = f"jflow closures of {task}"
        self._thread = threading.Thread(target=self._run_jobs, name=name, daemon=True)

    def start(self) -> None:
        """Begins to connect, on the link's thread."""
        self._thread.start()

    def close(self) -> None:
        """Closes the connection and ends the thread, without waiting for it."""
        self._closing.set()
        self.disconnect()

    def disconnect(self) -> ResourceRef | None:
        """Closes the connection, so that the thread opens a new one.

        Returns:
          The table that has gone with it.
        """
        with self._lock:
            present, table = self._connection, self.table
            self._connection = self.table = None
            self._concretes, self._reads = {}, {}
        self._jobs.put(None)
        if present is not None:
            present.close()
        return table

    @property
    def is_lost(self) -> bool:
        """Whether the connection has ended and has to be reopened."""
        connection = self._connection
        return connection is not None and connection.is_lost

    def dispatch(self, attempt: LinkAttempt) -> None:
        """Starts an attempt, on this thread or on the link's."""
        connection = self._connection
        if connection is None:
            self._events.failed(self.index, attempt, self._gone())
            return
        concrete = self._concretes.get(attempt.key)
        is_ready = concrete is not None and concrete.is_ready
        if not is_ready or (self._taking and attempt.takes_elements):
            self._enqueue(connection, attempt)
            return
        assert concrete is not None
        try:
            args = attempt.arguments(self.index, 0.0)
        except Exception as error:
            self._events.failed(self.index, attempt, error)
            return
        if args is None:
            self._enqueue(connection, attempt)
        else:
            self._start(attempt, concrete, args)

    def _enqueue(self, connection: Connection, attempt: LinkAttempt) -> None:
        """Leaves an attempt to the link's thread; attempts that take elements keep their order."""
        if not attempt.takes_elements:
            self._jobs.put(partial(self._try_start, connection, attempt))
            return
        with self._lock:
            self._taking.append((connection, attempt))
            is_first = len(self._taking) == 1
        if is_first:
            self._jobs.put(self._take_next)

    def prepare_batch(self, closure: ScheduledClosure) -> None:
        """Compiles batches of a closure's program, on the link's thread."""
        connection = self._connection
        if connection is not None:
            self._jobs.put(partial(self._compile_batch, connection, closure))

    # Results that the worker keeps ---------------------------------------------------------------

    def fetch(self, number: int, avals: tuple[Any, ...], callback: FetchCallback) -> None:
        """Reads a result; calls `callback` with its leaves or with an error."""
        table = self.table
        if table is None:
            callback(self._gone())
            return
        types = tuple((aval.shape, aval.dtype) for aval in avals)
        values = [number_of(number)]

        def ended(future: Future[list[Any]]) -> None:
            error = CancelledError("stopped") if future.cancelled() else future.exception()
            callback(future.result() if error is None else error)

        make = partial(fetching, table, avals)
        self._jobs.put(partial(self._read, table, types, make, values, ended, callback))

    def free(self, numbers: Sequence[int]) -> None:
        """Frees results; a worker that is lost has freed them already."""
        table = self.table
        if table is None:
            return
        for begin in range(0, len(numbers), N_FREED):
            some = [n % 2**31 for n in numbers[begin : begin + N_FREED]]
            values = [np.array(some + [-1] * (N_FREED - len(some)), np.int32)]
            make = partial(freeing, table)
            self._jobs.put(partial(self._read, table, None, make, values, _ignore, _ignore))

    def forget(self, table: ResourceRef | None) -> None:
        """Drops the programs that read a table which no longer exists."""
        with self._lock:
            gone = [key for key in self._concretes if table in key[2].tables]
            for key in gone:
                del self._concretes[key]

    def _read(
        self,
        table: ResourceRef,
        key: Any,
        make: Callable[[], Any],
        values: list[Any],
        ended: Callable[[Future[list[Any]]], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Runs a program on the worker's table, on the link's thread."""
        connection = self._connection
        try:
            if connection is None or self.table is not table:
                raise self._gone()
            concrete = self._reads.get(key)
            if concrete is None:
                title = "results of closures"
                concrete = Concrete(connection, make(), ["number"], DEFAULT_STRATEGY, title)
                concrete.prepare(FOREVER)
                self._reads[key] = concrete
            future = concrete.start(concrete.feeds(values), FOREVER)
        except Exception as error:
            failed(error)
            return
        future.add_done_callback(ended)

    # On the link's thread -----------------------------------------------------------------------

    def _run_jobs(self) -> None:
        while not self._closing.is_set():
            connection = self._connected()
            if connection is None:
                return
            while self._connection is connection:
                job = self._jobs.get()
                if job is not None:
                    job()
                job = None  # it has an attempt, which must not outlive its end

    def _connected(self) -> Connection | None:
        """Connects until it succeeds; None if the link is closed."""
        start, is_logged = perf_counter(), False
        pauses = self._pauses
        if pauses is None:
            pauses = self._pauses = backoff(0.02, _LONGEST_PAUSE_S)
        else:  # nothing has succeeded over the connection before
            self._closing.wait(next(pauses))
        while not self._closing.is_set():
            connection = self._connect()
            try:
                connection.check()
                self._events.introduce(connection)
                connection.disable_reconnect()
                self._events.rebuild(self.index)
            except FencedError as error:
                connection.close()
                self._events.fenced(error)
                return None
            except OpError as error:
                connection.close()
                if not is_logged and perf_counter() - start > _NOTICE_AFTER_S:
                    is_logged = True
                    _LOG.warning("%s is still down: %s", self.task, error)
                self._closing.wait(next(pauses))
                continue
            with self._lock:
                self._connection = connection
                self.table = table_of(self.task, connection.session)
            if self._closing.is_set():
                connection.close()
                return None
            self._events.connected(self.index, perf_counter() - start)
            return connection
        return None

    def _take_next(self) -> None:
        """Starts the next attempt that takes elements, if they were read."""
        first = self._taking[0]
        tried = [one for one in [*self._taking] if one is first or one[1].is_cancelled]
        ended = [one for one in tried if self._try_start(*one)]
        with self._lock:
            self._taking = [one for one in self._taking if one not in ended]
            is_next = bool(self._taking)
        if is_next:
            self._jobs.put(self._take_next)

    def _try_start(self, connection: Connection, attempt: LinkAttempt) -> bool:
        """Registers the program of an attempt and starts it; False if elements were not read."""
        try:
            self._check_wanted(attempt)
            if connection is not self._connection:
                raise self._gone()
            closure, n = attempt.closures[0], len(attempt.closures)
            concrete = self._registered(connection, closure, n, attempt.layout)
            args = attempt.arguments(self.index, _WAIT_S)
        except Exception as error:
            self._events.failed(self.index, attempt, error)
            return True
        if args is None:
            return False
        self._start(attempt, concrete, args)
        return True

    def _registered(
        self,
        connection: Connection,
        closure: ScheduledClosure,
        n: int,
        layout: AttemptLayout = PLAIN,
    ) -> Concrete:
        key = closure.program.number, n, layout
        concrete = self._concretes.get(key)
        if concrete is None:
            jaxpr = bound_to(closure.program.jaxpr, self.task)
            if layout is not PLAIN:
                jaxpr = arranged(jaxpr, layout)
            concrete = closure.concrete.on(connection, jaxpr)
            if n > 1:
                concrete = concrete.batch(n)
        if not concrete.is_ready:
            concrete.prepare(FOREVER)
            with self._lock:
                if self._connection is connection:
                    self._concretes[key] = concrete
        return concrete

    def _compile_batch(self, connection: Connection, closure: ScheduledClosure) -> None:
        if connection is not self._connection:
            return
        try:
            self._registered(connection, closure, closure.program.batch_size)
        except Exception as error:
            # Closures of the program run one by one then, and say it if the program is at fault.
            _LOG.warning("no batches of %r on %s: %s", closure.remote_value, self.task, error)
            return
        self._events.batch_ready(self.index, closure.kind)

    # On any thread ------------------------------------------------------------------------------

    def _start(self, attempt: LinkAttempt, concrete: Concrete, args: Sequence[Any]) -> None:
        attempt.concrete, attempt.args = concrete, args
        start = thread_time()
        try:
            self._check_wanted(attempt)
            deadline = attempt.closures[0].deadline
            future = concrete.start(attempt.feeds(), deadline, attempt.effect)
        except Exception as error:
            self._events.failed(self.index, attempt, error)
            return
        attempt.dispatch_s = thread_time() - start
        attempt.set_future(future)
        future.add_done_callback(partial(self._ended, attempt))

    def _ended(self, attempt: LinkAttempt, future: Future[list[Any]]) -> None:
        attempt.clear_future()
        if future.cancelled():
            self._events.failed(self.index, attempt, CancelledError("the step was cancelled"))
            return
        error = future.exception()
        if error is None:
            self._pauses = None
            self._events.ended(self.index, attempt, future.result())
        else:
            self._events.failed(self.index, attempt, error)

    def _check_wanted(self, attempt: LinkAttempt) -> None:
        if attempt.is_cancelled:
            raise CancelledError("the attempt was cancelled before it was started")

    def _gone(self) -> UnavailableError:
        return UnavailableError(f"{self.task} was lost", task=str(self.task))


def _ignore(_: object) -> None:
    """Ignores the outcome of freeing: a result that cannot be freed is already gone."""

"""`ApartQueue`: work of all threads of a process for processes apart, which it starts and ends."""

from __future__ import annotations

import atexit
import logging
import math
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar

from jflow.base.logs import event
from jflow.errors import InternalError, OpError
from jflow.plan.apart.process import ApartProcess

P = TypeVar("P", bound=ApartProcess)
R = TypeVar("R")

_LOG = logging.getLogger(__name__)
LINGER_S = 30.0
"""How long an idle process stays that is not needed, in seconds."""
_PATIENCE_S = 0.5
"""How long work waits for a busy process before another one is started, in seconds.

To start one takes a second of a processor.
"""

_Work = Callable[[Callable[[], P]], Any]
"""Does a piece of work; given a function that returns a process, which may have to start.

That raises InternalError if the process could not be started.
"""


class _Item(NamedTuple, Generic[P]):
    """A piece of work, its future, and when it came."""

    work: _Work[P]
    future: Future[Any]
    since: float


class ApartQueue(Generic[P]):
    """Gives pieces of work to processes apart, to each one after the other; thread-safe.

    The first process is started with the first server of this process, or with the first work, and
    again if it has ended; it ends some time after the last server. Others are started when work has
    waited for long, and end some time after they were needed.

    Args:
      name: what the processes are, such as "validator", for logs and threads.
      start: starts a process.
      n_most: returns the most processes at one time.
    """

    def __init__(
        self, name: str, start: Callable[[], P], n_most: Callable[[], int] = lambda: 1
    ) -> None:
        self._name = name
        self._start = start
        self._n_most = n_most
        self._lock = threading.Lock()
        self._lanes: list[_Lane[P]] = [_Lane()]
        self._waiting: deque[_Item[P]] = deque()
        self._n_users = 0
        self._is_closed = False

    @property
    def pids(self) -> list[int]:
        """The ids of the processes."""
        processes = [lane.process for lane in self._lanes]
        return [one.pid for one in processes if one is not None and not one.has_ended]

    @property
    def n_waiting(self) -> int:
        """How many pieces of work wait for a process."""
        return len(self._waiting)

    def start(self) -> None:
        """Starts a process in the background; it runs until `stop` has been called as often."""
        with self._lock:
            self._n_users += 1
            self._wake_idle(len(self._lanes))

    def stop(self) -> None:
        """Undoes one call of `start`; after the last one, processes end when they are idle."""
        with self._lock:
            self._n_users -= 1
            self._wake_idle(len(self._lanes))

    def adopt(self, process: P) -> None:
        """Takes a process as the first one. Call it before anything else."""
        self._lanes[0].process = process

    def put(self, work: Callable[[Callable[[], P]], R]) -> Future[R]:
        """Adds a piece of work; see `_Work`.

        Returns:
          What it returns or raises; InternalError if the queue is closed.
        """
        future: Future[R] = Future()
        future.set_running_or_notify_cancel()  # others may wait for it, too
        with self._lock:
            if self._is_closed:
                future.set_exception(InternalError(f"this process ends; it has no {self._name}"))
                return future
            self._waiting.append(_Item(work, future, time.monotonic()))
            n_idle = sum(not lane.is_busy for lane in self._lanes)
            if len(self._waiting) > n_idle and len(self._lanes) < self._n_most():
                self._lanes.append(_Lane())
            self._wake_idle(len(self._waiting))
        return future

    def close(self) -> None:
        """Ends the processes for good; work that is not done fails."""
        with self._lock:
            self._is_closed = True
            lanes = [lane for lane in self._lanes if lane.thread is not None]
            for lane in lanes:
                lane.wake()
            processes = [lane.process for lane in self._lanes if lane.process is not None]
        for process in processes:
            process.kill()
        for lane in lanes:
            assert lane.thread is not None
            lane.thread.join()

    def _wake_idle(self, n: int) -> None:
        """Wakes up to `n` lanes without work, those with a process first. The lock must be held."""
        idle = [lane for lane in self._lanes if not lane.is_busy]
        for lane in sorted(idle, key=lambda one: one.process is None)[:n]:
            if lane.thread is None and not self._is_closed:
                if lane is self._lanes[0]:
                    atexit.register(_close_at_exit, self, os.getpid())
                lane.begin(self._serve, f"jflow {self._name}")
            lane.wake()

    # The thread of a lane ---------------------------------------------------------------------

    def _serve(self, lane: _Lane[P]) -> None:
        while not self._is_closed:
            if lane.process is not None and lane.process.has_ended:
                lane.process = None
            item = self._next(lane) if lane is self._lanes[0] or self._is_ready(lane) else None
            if item is not None:
                self._do(lane, item.work, item.future)
                continue
            if lane.process is None and self._keeps(lane) and not lane.has_failed:
                with suppress(InternalError):  # work that comes tries it again, and gets the error
                    self._process(lane)
            lane.wait(self._wait_s(lane), self._note_end)
        if lane.process is not None:
            lane.process.end()
        while (item := self._next(lane)) is not None:
            item.future.set_exception(InternalError(f"this process ends; it has no {self._name}"))
        with self._lock:
            lane.end()

    def _keeps(self, lane: _Lane[P]) -> bool:
        """Whether a lane has a process although there is no work."""
        return lane is self._lanes[0] and self._n_users > 0

    def _wait_s(self, lane: _Lane[P]) -> float | None:
        """Returns after how long a lane without work looks around, or ends its process."""
        if lane.process is not None:
            return None if self._keeps(lane) else LINGER_S
        return _PATIENCE_S if self._waiting and lane is not self._lanes[0] else None

    def _is_ready(self, lane: _Lane[P]) -> bool:
        """Whether another lane than the first one has a process that is ready; may start one.

        Work is not for it before: the others may have done it until then.
        """
        try:
            if lane.process is None and self._needs_more():
                self._process(lane).await_ready()
        except InternalError:  # which the work meets, if the first lane cannot start one either
            with self._lock:
                self._lanes[0].wake()
            return False
        return lane.process is not None

    def _needs_more(self) -> bool:
        """Whether work has waited for long, and not for a process that starts."""
        processes = [lane.process for lane in self._lanes]
        if any(one is not None and not one.is_ready for one in processes):
            return False
        with self._lock:
            oldest = self._waiting[0].since if self._waiting else math.inf
        return time.monotonic() - oldest >= _PATIENCE_S

    def _next(self, lane: _Lane[P]) -> _Item[P] | None:
        with self._lock:
            lane.is_busy = bool(self._waiting)
            return self._waiting.popleft() if self._waiting else None

    def _process(self, lane: _Lane[P]) -> P:
        """Returns the process of a lane; starts it if there is none."""
        self._check_open()
        if lane.process is None or lane.process.has_ended:
            lane.process = None
            try:
                lane.process = self._start()
            except Exception as error:
                _LOG.exception("the %s could not be started", self._name)
                lane.has_failed = True
                raise InternalError(f"the {self._name} could not be started: {error}") from None
            self._check_open()  # what has closed it meanwhile does not know this process
        return lane.process

    def _check_open(self) -> None:
        if self._is_closed:
            raise InternalError(f"this process ends; it has no {self._name}")

    def _do(self, lane: _Lane[P], work: _Work[P], future: Future[Any]) -> None:
        error: Exception
        try:
            result = work(lambda: self._process(lane))
        except OpError as failed:
            error = failed
        except Exception as failed:  # the thread must go on
            _LOG.exception("the thread of the %s failed", self._name)
            error = InternalError(f"the {self._name} failed: {failed!r}")
        else:
            lane.has_failed = False
            future.set_result(result)
            return
        if lane.process is not None:
            lane.has_failed = lane.process.has_ended and not lane.process.is_ready
            if lane.process.has_ended:
                self._note_end(lane.process)
        future.set_exception(error)

    def _note_end(self, process: ApartProcess) -> None:
        event(_LOG, logging.WARNING, f"{self._name}_ended", how=process.how_it_ended)


class _Lane(Generic[P]):
    """A process of a queue, and the thread that gives it work.

    Attributes:
      process: the process; None if there is none.
      thread: the thread; None before it is needed.
      is_busy: whether the thread does work.
      has_failed: whether the last process could not be started.
    """

    def __init__(self) -> None:
        self.process: P | None = None
        self.thread: threading.Thread | None = None
        self.is_busy = False
        self.has_failed = False
        # Made with the thread: forks of a process that has only imported this must not share them.
        self._wake: socket.socket | None = None
        self._woken: socket.socket | None = None

    def begin(self, serve: Callable[[_Lane[P]], object], name: str) -> None:
        """Starts its thread, which serves it."""
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self.thread = threading.Thread(target=serve, args=(self,), name=name, daemon=True)
        self.thread.start()

    def end(self) -> None:
        """Ends what `begin` has begun, on its thread."""
        for one in (self._wake, self._woken):
            if one is not None:
                one.close()
        self._wake = self._woken = None

    def wake(self) -> None:
        """Ends the next or present `wait`. The lock of the queue must be held."""
        if self._wake is not None:
            with suppress(BlockingIOError):  # it is about to wake
                self._wake.send(b"x")

    def wait(self, limit_s: float | None, note_end: Callable[[ApartProcess], object]) -> None:
        """Waits for work, or for an idle process to end.

        Args:
          limit_s: the longest time, in seconds, after which the process is ended; None for ever.
          note_end: called with a process that has ended by itself.
        """
        poll, process, woken = select.poll(), self.process, self._woken
        assert woken is not None
        poll.register(woken, select.POLLIN)
        if process is not None:
            poll.register(process, select.POLLIN)
        ready = {file for file, _ in poll.poll(None if limit_s is None else limit_s * 1000)}
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
                note_end(process)
            # The next would fail, too; work that comes tries it again.
            self.has_failed = not process.is_ready


def _close_at_exit(queue: ApartQueue[Any], pid: int) -> None:
    if os.getpid() == pid:
        queue.close()

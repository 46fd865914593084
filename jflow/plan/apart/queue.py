"""`ApartQueue`: work of all threads of a process for processes apart, which it starts and ends."""

from __future__ import annotations

import atexit
import logging
import os
import select
import socket
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, TypeVar

from jflow.base.logs import event
from jflow.errors import InternalError, OpError
from jflow.plan.apart.process import ApartProcess

P = TypeVar("P", bound=ApartProcess)
R = TypeVar("R")

_LOG = logging.getLogger(__name__)
LINGER_S = 30.0
"""How long an idle process stays that is not needed, in seconds."""

Work = Callable[[Callable[[], P]], Any]
"""Does a piece of work; given a function that returns a process, which may have to start.

That raises InternalError if the process could not be started.
"""


class ApartQueue(Generic[P]):
    """Gives pieces of work to processes apart, to each one after the other; thread-safe.

    The first process is started with the first server of this process, or with the first work, and
    again if it has ended; it ends some time after the last server. Others are started when work
    waits, and end some time after they were needed.

    Args:
      name: what the processes are, such as "validator", for logs and threads.
      start: starts a process.
      n_most: the most processes at one time.
    """

    def __init__(self, name: str, start: Callable[[], P], n_most: int = 1) -> None:
        self._name = name
        self._start = start
        self._n_most = n_most
        self._lock = threading.Lock()
        self._lanes: list[_Lane[P]] = [_Lane()]
        self._waiting: deque[tuple[Work[P], Future[Any]]] = deque()
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

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed

    def start(self) -> None:
        """Starts a process in the background; it runs until `stop` has been called as often."""
        with self._lock:
            self._n_users += 1
            self._wake_idle()

    def stop(self) -> None:
        """Undoes one call of `start`; after the last one, processes end when they are idle."""
        with self._lock:
            self._n_users -= 1
            self._wake_idle()

    def adopt(self, process: P) -> None:
        """Takes a process as the first one. Call it before anything else."""
        self._lanes[0].process = process

    def put(self, work: Callable[[Callable[[], P]], R]) -> Future[R]:
        """Adds a piece of work; see `Work`.

        Returns:
          What it returns or raises; InternalError if the queue is closed.
        """
        future: Future[R] = Future()
        future.set_running_or_notify_cancel()  # others may wait for it, too
        with self._lock:
            if self._is_closed:
                future.set_exception(InternalError(f"this process ends; it has no {self._name}"))
                return future
            self._waiting.append((work, future))
            n_idle = sum(not lane.is_busy for lane in self._lanes)
            if len(self._waiting) > n_idle and len(self._lanes) < self._n_most:
                self._lanes.append(_Lane())
            self._wake_idle()
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

    def _wake_idle(self) -> None:
        """Wakes the lanes without work, and starts their threads. The lock must be held."""
        for lane in self._lanes:
            if lane.thread is None and not self._is_closed:
                if lane is self._lanes[0]:
                    atexit.register(_close_at_exit, self, os.getpid())
                lane.begin(self._serve, f"jflow {self._name}")
            if not lane.is_busy:
                lane.wake()

    # The thread of a lane ---------------------------------------------------------------------

    def _serve(self, lane: _Lane[P]) -> None:
        while not self._is_closed:
            if lane.process is not None and lane.process.has_ended:
                lane.process = None
            item = self._next(lane)
            if item is not None:
                self._do(lane, *item)
                continue
            if lane.process is None and self._keeps(lane) and not lane.has_failed:
                with suppress(InternalError):  # work that comes tries it again, and gets the error
                    self._process(lane)
            lane.wait(None if self._keeps(lane) else LINGER_S, self._note_end)
        if lane.process is not None:
            lane.process.end()
        while (item := self._next(lane)) is not None:
            item[1].set_exception(InternalError(f"this process ends; it has no {self._name}"))

    def _keeps(self, lane: _Lane[P]) -> bool:
        """Whether a lane has a process although there is no work."""
        return lane is self._lanes[0] and self._n_users > 0

    def _next(self, lane: _Lane[P]) -> tuple[Work[P], Future[Any]] | None:
        with self._lock:
            lane.is_busy = bool(self._waiting)
            return self._waiting.popleft() if self._waiting else None

    def _process(self, lane: _Lane[P]) -> P:
        """Returns the process of a lane; starts it if there is none."""
        if self._is_closed:
            raise InternalError(f"this process ends; it has no {self._name}")
        if lane.process is None or lane.process.has_ended:
            lane.process = None
            try:
                lane.process = self._start()
            except Exception as error:
                _LOG.exception("the %s could not be started", self._name)
                lane.has_failed = True
                raise InternalError(f"the {self._name} could not be started: {error}") from None
        return lane.process

    def _do(self, lane: _Lane[P], work: Work[P], future: Future[Any]) -> None:
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

    def wake(self) -> None:
        """Ends the next or present `wait`."""
        if self._wake is not None:
            with suppress(BlockingIOError):  # it is about to wake
                self._wake.send(b"x")

    def wait(self, linger_s: float | None, note_end: Callable[[ApartProcess], object]) -> None:
        """Waits for work, or for an idle process to end.

        Args:
          linger_s: after how long the process is ended, in seconds; None if it stays.
          note_end: called with a process that has ended by itself.
        """
        poll, process, woken = select.poll(), self.process, self._woken
        assert woken is not None
        poll.register(woken, select.POLLIN)
        if process is not None:
            poll.register(process, select.POLLIN)
        limit = None if linger_s is None or process is None else linger_s * 1000
        ready = {file for file, _ in poll.poll(limit)}
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

"""`ThreadDriver`: runs the coroutines of the core in the threads of their callers."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

from jflow.base.deadline import FOREVER, Deadline
from jflow.base.deadline.notices import WaitNotice
from jflow.base.drivers.fibers import FiberEvent, FiberGroup, FiberJob, Fibers

_LOG = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")


class _Call(FiberGroup):
    """The fibers of one call of `ThreadDriver.run`, which only the calling thread runs.

    Attributes:
      works: what the thread has to perform, without the lock.
      woken: receives something when the thread has to look again: an event that has happened, or
        None.
    """

    def __init__(self) -> None:
        super().__init__()
        self.works: deque[_Work] = deque()
        self.woken: SimpleQueue[FiberEvent | None] = SimpleQueue()
        self._thread = threading.get_ident()

    def wake(self, fiber: FiberJob[Any]) -> None:
        super().wake(fiber)
        if threading.get_ident() != self._thread:
            self.woken.put(None)


class _ThreadEvent(FiberEvent):
    __slots__ = ()

    def set_threadsafe(self) -> None:
        # Without the driver's lock: the caller may hold another one.
        assert isinstance(self._group, _Call)
        self._group.woken.put(self)


class _Work:
    """A function to be called without the driver's lock, and its outcome."""

    def __init__(self, function: Callable[[], Any], ended: FiberEvent) -> None:
        self._function = function
        self._ended = ended
        self._value: Any = None
        self._error: BaseException | None = None

    def perform(self) -> None:
        try:
            self._value = self._function()
        except BaseException as error:  # of any class: the fiber that waits raises it
            self._error = error

    def end(self) -> None:
        self._ended.set()

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value


class ThreadDriver(Fibers):
    """See `CoreDriver`. Many threads may call `run`.

    Invariants: fibers run under the lock; a thread runs those of its own calls only, so what one
    has to wait for keeps no other one. Nothing sleeps, and no work is performed, under the lock.

    Attributes:
      lock: guards what fibers use; a thread that holds it may call plain functions of the core.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    now = staticmethod(time.monotonic)
    wall_time = staticmethod(time.time)
    random_bits = staticmethod(secrets.randbits)

    def event(self) -> FiberEvent:
        """See `CoreDriver.event`."""
        return _ThreadEvent(self.group)

    async def work(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """See `CoreDriver.work`; the call's thread is blocked meanwhile."""
        call = self.group
        assert isinstance(call, _Call)
        end_event = self.event()
        work = _Work(partial(function, *args, **kwargs), end_event)
        call.works.append(work)
        try:
            await end_event.wait()
        except BaseException:
            with suppress(ValueError):  # it has begun
                call.works.remove(work)
            raise
        result: T = work.result()
        return result

    def run(
        self,
        coroutine: Coroutine[Any, Any, T],
        deadline: Deadline = FOREVER,
        doing: str = "",
        what: Callable[[], str] = str,
    ) -> T:
        """Runs a coroutine, and all fibers that it starts, to completion.

        Args:
          coroutine: what to run.
          deadline: ends it where it waits when no time remains; not work.
          doing: what the error says then.
          what: says what it waits for, for notices of long waits.

        Raises:
          OpError: that of the deadline.
          BaseException: what the coroutine raises. If the thread is interrupted while it sleeps,
            the coroutine is cancelled, which undoes what had begun.
        """
        call = _Call()
        with self.lock:
            former, self.group = self.group, call
            try:
                main = self.start(coroutine)
            finally:
                self.group = former
        try:
            self._run(call, main, deadline, doing, what)
        except BaseException:
            with self.lock:
                self._end_call(call, main)
            raise
        return main.result()

    def _run(
        self,
        call: _Call,
        main: FiberJob[Any],
        deadline: Deadline,
        doing: str,
        what: Callable[[], str],
    ) -> None:
        notice = WaitNotice(what)
        while True:
            with self.lock:
                self.fire_timers()
                while call.ready:
                    self.step(call.ready.popleft())
                if not call.n_open:
                    break
                work = call.works.popleft() if call.works else None
                at = self.next_timer()
            if work is not None:
                work.perform()
                with self.lock:
                    work.end()
                continue
            self._sleep(call, at, deadline, notice)
            if deadline.remaining() == 0:
                with self.lock:
                    main.throw(deadline.error(doing))
                deadline = FOREVER
        call.failed.pop(main, None)
        for job, error in call.failed.items():
            _LOG.error("%s failed, and nothing waits for it", job, exc_info=error)

    def _sleep(
        self, call: _Call, until: float | None, deadline: Deadline, notice: WaitNotice
    ) -> None:
        """Blocks until a fiber of the call is woken, a notice is due or a time limit passes."""
        left = deadline.remaining()
        if until is not None:
            pause = max(until - self.now(), 0.0)
            left = pause if left is None else min(left, pause)
        try:
            event = call.woken.get(timeout=notice.pause(left))
        except Empty:
            notice.tell()
            return
        if event is not None:
            with self.lock:
                event.set()

    def _end_call(self, call: _Call, main: FiberJob[Any]) -> None:
        """Cancels the remaining fibers of a call whose thread was interrupted, without waiting.

        The interrupt may have come at any line, also between taking a fiber and running it.
        """
        main.is_interrupted = True
        main.cancel()
        call.ready.append(main)
        self._run_ready(call)
        former, self.group = self.group, call
        try:
            with suppress(RuntimeError):  # it does not end where it waits
                main.close()
        finally:
            self.group = former
        self._run_ready(call)

    def _run_ready(self, call: _Call) -> None:
        while call.ready:
            fiber = call.ready.popleft()
            with suppress(BaseException):
                self.step(fiber)

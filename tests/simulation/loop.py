"""An event loop for many processes in one thread: virtual time, and an order that a seed decides.

Each simulated process is a `Host`. Within a host, callbacks run in the order of asyncio, which code
may rely on; which host runs next is drawn. A host can be paused, like a process that is stopped,
and can die: nothing of it runs any more, not even the `finally` blocks of its coroutines.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import itertools
import logging
import random
import sys
import warnings
import weakref
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from typing import Any

_BURST = 6
"""How many callbacks of one host may run before another host is drawn."""

_MOST_STEPS = 100_000
"""After how many callbacks a wait counts as endless; a schedule has about a thousand."""

_SLOWEST_WORK_S = 0.02
"""The longest time that a function takes in a thread."""


class StuckError(AssertionError):
    """Nothing can go on, or a condition does not come true in time."""


class Host:
    """A simulated process.

    Args:
      loop: runs it.
      name: for traces.
    """

    def __init__(self, loop: SimulatedLoop, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_paused = False
        self.ready: deque[asyncio.Handle] = deque()
        self.loop = loop
        self._tasks: list[weakref.ref[asyncio.Task[Any]]] = []
        self._n_most = 64
        self._left: list[asyncio.Task[Any]] = []
        self.context: Context = copy_context()
        self.context.run(_HOST.set, self)

    def call(self, delay: float, function: Callable[..., object], *args: Any) -> None:
        """Calls a function on this host after some time, unless it is dead then."""
        self.loop.call_at(self.loop.time() + delay, function, *args, context=self.context)

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Starts a coroutine on this host."""
        return self.context.copy().run(self.loop.create_task, coroutine)

    def add(self, task: asyncio.Task[Any]) -> None:
        """Remembers a task, without keeping what it returns."""
        self._tasks.append(weakref.ref(task))
        if len(self._tasks) > self._n_most:
            self._tasks = [one for one in self._tasks if _is_open(one())]
            self._n_most = 64 + 2 * len(self._tasks)

    def die(self) -> None:
        """Ends it, as `kill -9` does."""
        self.is_dead = True
        self.ready.clear()
        # Kept to the end of the simulation, or the garbage collector would run their ends.
        self._left = [task for one in self._tasks if _is_open(task := one())]  # type: ignore[misc]

    def close(self) -> None:
        """Closes its coroutines, whose ends find the loop over."""
        if not self.is_dead:
            self.die()
        for task in self._left:
            coroutine = task.get_coro()
            with suppress(BaseException):  # what a `finally` block of it raises
                self.context.copy().run(coroutine.close)
        self._left.clear()

    def pause(self, is_paused: bool) -> None:
        """Stops it, or lets it go on, as SIGSTOP and SIGCONT do."""
        self.is_paused = is_paused

    def __repr__(self) -> str:
        return f"<host {self.name}>"


def _is_open(task: asyncio.Task[Any] | None) -> bool:
    return task is not None and not task.done()


_HOST: ContextVar[Host] = ContextVar("host of a simulation")


def current_host() -> Host:
    """Returns the host whose code runs."""
    return _HOST.get()


class _Task(asyncio.Task[Any]):
    """A task whose hash is its number, so that the order of a set of tasks is always the same."""

    _numbers = itertools.count()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._number = next(self._numbers)
        super().__init__(*args, **kwargs)
        self._log_destroy_pending = False  # that of a host which has died never ends

    def __hash__(self) -> int:
        return self._number


def _task(loop: Any, coroutine: Any, context: Context | None = None) -> asyncio.Task[Any]:
    if loop.is_over:
        coroutine.close()
        raise RuntimeError("the simulation is over")
    task = _Task(coroutine, loop=loop, context=context)
    host = _HOST.get() if context is None else context[_HOST]
    host.add(task)
    return task


@contextmanager
def silence() -> Iterator[None]:
    """A context in which nothing is said of coroutines whose ends find the loop over."""
    level, hook = logging.root.manager.disable, sys.unraisablehook
    logging.disable(logging.CRITICAL)
    sys.unraisablehook = lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
        sys.unraisablehook = hook


def collect() -> None:
    """Frees what schedules have left in cycles of references."""
    with silence():
        gc.collect()


class SimulatedLoop(asyncio.BaseEventLoop):
    """The event loop of all hosts.

    Args:
      seed: decides the order, and what `random` draws.

    Attributes:
      random: the source of all that is drawn.
      n_steps: how many callbacks have run.
      failures: what coroutines of hosts have raised that nothing took.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.n_steps = 0
        self.failures: list[str] = []
        self.is_over = False
        self._time = 0.0
        self._hosts: list[Host] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle, Host]] = []
        self._numbers = itertools.count()
        _Task._numbers = itertools.count()
        self.set_task_factory(_task)
        self.set_exception_handler(self._failed)

    def host(self, name: str) -> Host:
        """Returns a new host."""
        host = Host(self, name)
        self._hosts.append(host)
        return host

    def _failed(self, _: Any, context: dict[str, Any]) -> None:
        if self.is_over:
            return
        error = context.get("exception")
        self.failures.append(f"{context['message']}: {error!r}")

    # What asyncio calls -------------------------------------------------------------------------

    def time(self) -> float:
        return self._time

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        host = _HOST.get() if context is None else context[_HOST]
        handle = asyncio.Handle(callback, args, self, context)
        if not (host.is_dead or self.is_over):
            host.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        host = _HOST.get() if context is None else context[_HOST]
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        if not (host.is_dead or self.is_over):
            heapq.heappush(self._timers, (when, next(self._numbers), timer, host))
        return timer

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._time + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Does nothing: it is dropped when its time has come."""

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, function: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Calls a function some time later, in one piece, as a thread would."""
        future = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                result = function(*args)
            except StopIteration as error:
                future.set_exception(RuntimeError(f"StopIteration: {error.value!r}"))
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self.call_later(self.work_s(), work)
        return future

    def work_s(self) -> float:
        """Draws how long work in a thread takes."""
        drawn = self.random.random()
        return 0.0 if drawn < 0.5 else drawn * drawn * _SLOWEST_WORK_S

    # Running it ---------------------------------------------------------------------------------

    @contextmanager
    def running(self) -> Iterator[None]:
        """In this context, asyncio takes it for the loop that runs in this thread."""
        former = events._get_running_loop()
        events._set_running_loop(self)
        try:
            yield
        finally:
            self.is_over = True
            with silence():
                for host in self._hosts:
                    host.close()
            events._set_running_loop(former)
            self._timers.clear()
            self.close()

    def run_until(self, is_over: Callable[[], bool], most_s: float) -> None:
        """Runs all hosts until a condition holds.

        Raises:
          StuckError: if it does not hold after `most_s` seconds of virtual time, or very many
            callbacks.
        """
        limit, last = self._time + most_s, self.n_steps + _MOST_STEPS
        while not is_over():
            if self.n_steps > last:
                raise StuckError(f"it goes on and on: {_MOST_STEPS} callbacks have run")
            runnable = [one for one in self._hosts if one.ready and not one.is_paused]
            if runnable:
                self._run(runnable)
            elif not self._advance(limit):
                raise StuckError(f"nothing has come of it after {most_s:g} s of virtual time")

    def _run(self, runnable: list[Host]) -> None:
        draw = self.random.random()
        host = runnable[int(draw * len(runnable))]
        ready = host.ready
        for _ in range(1 + int(draw * 4096) % _BURST):
            if not ready:
                return
            handle = ready.popleft()
            if not handle.cancelled():
                self.n_steps += 1
                handle._run()

    def _advance(self, limit: float) -> bool:
        """Moves on to the next timer; False if there is none before the limit."""
        timers = self._timers
        while timers:
            when, _, timer, host = heapq.heappop(timers)
            if timer.cancelled() or host.is_dead:
                continue
            if when > limit:
                return False
            self._time = max(self._time, when)
            host.ready.append(timer)
            # What is due at the same time may run in any order.
            while timers and timers[0][0] <= self._time:
                _, _, other, its_host = heapq.heappop(timers)
                if not (other.cancelled() or its_host.is_dead):
                    its_host.ready.append(other)
            return True
        return False


class SimulatedThreads(Executor):
    """Threads that do their work on the event loop, some time after it was submitted."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        future: Future[Any] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        loop.call_later(loop.work_s(), work)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Does nothing: there are no threads."""

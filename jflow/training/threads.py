"""`Coordinator` stops a group of threads together; `LooperThread` is one that calls a function."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from jflow.base.deadline.notices import WaitNotice
from jflow.errors import OutOfRangeError

_LOG = logging.getLogger(__name__)

_POLL_S = 0.2
"""Interval at which `join` looks for a request to stop, in seconds."""

ExcInfo = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]


class Coordinator:
    """Coordinates the termination of a group of threads.

    A thread runs `while not coordinator.should_stop(): ...` inside
    `with coordinator.stop_on_exception():`, and the main thread calls `join`. All methods are
    thread-safe.

    Args:
      clean_stop_exception_types: exceptions that mean a regular end; `join` does not raise them.
        None for OutOfRangeError only.
    """

    def __init__(
        self, clean_stop_exception_types: Iterable[type[BaseException]] | None = None
    ) -> None:
        if clean_stop_exception_types is None:
            clean_stop_exception_types = (OutOfRangeError,)
        self._clean_types = tuple(clean_stop_exception_types)
        self._lock = threading.Lock()
        self._stop_event = threading.Event()
        self._requested: BaseException | None = None
        self._joined = False
        self._threads: set[threading.Thread] = set()

    def __repr__(self) -> str:
        state = "stopping" if self.should_stop() else "running"
        return f"<jflow.train.Coordinator {state}, {len(self._threads)} threads>"

    def should_stop(self) -> bool:
        """Returns whether a stop was requested."""
        return self._stop_event.is_set()

    def request_stop(self, ex: BaseException | ExcInfo | None = None) -> None:
        """Requests that all threads stop.

        Only the exception of the first request is kept, because later ones may be consequences of
        the stop.

        Args:
          ex: the reason, which `join` raises: an exception, `sys.exc_info()`, or None.

        Raises:
          TypeError: if `ex` is something else.
          BaseException: `ex` itself, if `join` has already returned and cannot raise it.
        """
        error = self._unclean(ex)
        with self._lock:
            if self._joined and error is not None:
                raise error
            if not self._stop_event.is_set():
                self._requested = error
                self._stop_event.set()

    def clear_stop(self) -> None:
        """Resets the coordinator: no request, no exception, threads not joined."""
        with self._lock:
            self._joined = False
            self._requested = None
            self._stop_event.clear()

    def wait_for_stop(self, timeout: float | None = None) -> bool:
        """Blocks until a stop is requested.

        Args:
          timeout: limit in seconds; None for no limit.

        Returns:
          Whether a stop was requested.
        """
        return self._stop_event.wait(timeout)

    def register_thread(self, thread: threading.Thread) -> None:
        """Adds a thread to those that `join` waits for."""
        with self._lock:
            self._threads.add(thread)

    @property
    def joined(self) -> bool:
        """Whether `join` has returned or raised."""
        return self._joined

    def join(
        self,
        threads: Iterable[threading.Thread] | None = None,
        stop_grace_period_secs: float = 120,
        ignore_live_threads: bool = False,
    ) -> None:
        """Blocks until all threads have ended, or for a limited time after a request to stop.

        Args:
          threads: threads to wait for in addition to the registered ones.
          stop_grace_period_secs: limit in seconds for threads to end after the request.
          ignore_live_threads: whether to return, not raise, if threads are alive after that time.

        Raises:
          BaseException: the exception of the request.
          RuntimeError: if threads are alive after that time; the message names them.
        """
        with self._lock:
            awaited = list(self._threads.union(threads or ()))
        self._wait_for_end_or_stop(awaited)
        deadline = time.monotonic() + stop_grace_period_secs
        notice = WaitNotice(lambda: f"for threads that were asked to stop: {_alive(awaited)}")
        for thread in awaited:
            while thread.is_alive() and (left := deadline - time.monotonic()) > 0:
                thread.join(notice.pause(left))
                notice.tell()
        stragglers = _alive(awaited)
        with self._lock:
            self._joined = True
            self._threads.clear()
        self.raise_requested_exception()
        if stragglers and ignore_live_threads:
            _LOG.info("stopped with threads still running: %s", stragglers)
        elif stragglers:
            raise RuntimeError(
                f"Coordinator stopped with threads still running: {stragglers}; they did not end "
                f"within {stop_grace_period_secs} s of the stop"
            )

    def raise_requested_exception(self) -> None:
        """Raises the exception of the request to stop, if there is one."""
        with self._lock:
            error = self._requested
        if error is not None:
            raise error

    @contextmanager
    def stop_on_exception(self) -> Iterator[None]:
        """Returns a context manager that turns exceptions into requests to stop."""
        try:
            yield
        except BaseException as error:
            # Also of Ctrl-C, which `join` raises in its own thread.
            self.request_stop(error)

    def _wait_for_end_or_stop(self, threads: Iterable[threading.Thread]) -> None:
        for thread in threads:
            while thread.is_alive() and not self.should_stop():
                thread.join(_POLL_S)

    def _unclean(self, ex: Any) -> BaseException | None:
        error = ex[1] if isinstance(ex, tuple) and len(ex) == 3 else ex
        if not isinstance(error, BaseException | None):
            raise TypeError(f"expected an exception, sys.exc_info() or None as ex, got {ex!r:.80}")
        return None if isinstance(error, self._clean_types) else error


def _alive(threads: Iterable[threading.Thread]) -> str:
    """Returns the names of those threads that are alive."""
    return " ".join(sorted(thread.name for thread in threads if thread.is_alive()))


class LooperThread(threading.Thread):
    """A daemon thread that calls a function until a stop is requested.

    An exception in the function becomes a request to stop. A subclass can override `start_loop`,
    `run_loop` and `stop_loop` instead of passing a function.

    Args:
      coord: the coordinator, with which the thread is registered.
      timer_interval_secs: interval in seconds from the start of a call to that of the next; None
        for no pause. Late calls are made up for.
      target: the function.
      args, kwargs: its arguments.

    Raises:
      TypeError: if `coord` is not a coordinator.
      ValueError: if there are arguments but no function.
    """

    def __init__(
        self,
        coord: Coordinator,
        timer_interval_secs: float | None,
        target: Callable[..., object] | None = None,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(coord, Coordinator):
            raise TypeError(f"coord must be a Coordinator, got {type(coord).__name__}")
        if target is None and (args or kwargs):
            raise ValueError("args and kwargs require a target; pass target=")
        super().__init__(daemon=True)
        self._coord = coord
        self._timer_interval_secs = timer_interval_secs
        self._call = target
        self._arguments = (tuple(args or ()), dict(kwargs or {}))
        coord.register_thread(self)

    @classmethod
    def loop(
        cls,
        coord: Coordinator,
        timer_interval_secs: float | None,
        target: Callable[..., object],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> Self:
        """Creates and starts a thread; takes and raises as the class."""
        looper = cls(coord, timer_interval_secs, target, args, kwargs)
        looper.start()
        return looper

    def run(self) -> None:
        """Runs the loop; called by the thread."""
        with self._coord.stop_on_exception():
            self.start_loop()
            due = time.monotonic()
            while not self._coord.wait_for_stop(due - time.monotonic()):
                due += self._timer_interval_secs or 0.0
                self.run_loop()
            self.stop_loop()

    def start_loop(self) -> None:
        """Called once, before the first `run_loop`."""

    def run_loop(self) -> None:
        """Called periodically; calls the function."""
        if self._call is not None:
            args, kwargs = self._arguments
            self._call(*args, **kwargs)

    def stop_loop(self) -> None:
        """Called once, after the last `run_loop`, unless that raised."""

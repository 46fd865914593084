"""`Coordinator`: threads that stop together and share the first error."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from jflow.errors import OutOfRangeError

_LOG = logging.getLogger(__name__)

_POLL_S = 0.2
"""How long `join` may take to see that a stop is wanted, in seconds."""

ExcInfo = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]


class Coordinator:
    """Lets threads ask each other to stop, and waits for all of them.

    A thread does `while not coordinator.should_stop(): ...` inside of
    `with coordinator.stop_on_exception():`, and the main thread calls `join`.

    Args:
      clean_stop_exception_types: exceptions that mean an ordinary end: a stop requested with
        one of them is a stop without an exception. OutOfRangeError alone if None.
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
        state = "asked to stop" if self.should_stop() else "running"
        return f"<jflow.train.Coordinator {state}, {len(self._threads)} threads>"

    def should_stop(self) -> bool:
        """Whether a stop was requested."""
        return self._stop_event.is_set()

    def request_stop(self, ex: BaseException | ExcInfo | None = None) -> None:
        """Asks every thread to stop.

        Only the first request counts: what fails because of the stop is not why it came.

        Args:
          ex: why, for `join` to raise: an exception, or what `sys.exc_info()` gives.

        Raises:
          TypeError: if it is neither.
          BaseException: `ex` itself, if nothing else would raise it because `join` has returned.
        """
        error = self._unclean(ex)
        with self._lock:
            if self._joined and error is not None:
                raise error
            if not self._stop_event.is_set():
                self._requested = error
                self._stop_event.set()

    def clear_stop(self) -> None:
        """Forgets the request, its exception and that threads were joined."""
        with self._lock:
            self._joined = False
            self._requested = None
            self._stop_event.clear()

    def wait_for_stop(self, timeout: float | None = None) -> bool:
        """Waits for a request to stop.

        Args:
          timeout: longest time in seconds; None for any.

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
        """Whether `join` has returned, or raised."""
        return self._joined

    def join(
        self,
        threads: Iterable[threading.Thread] | None = None,
        stop_grace_period_secs: float = 120,
        ignore_live_threads: bool = False,
    ) -> None:
        """Waits until all threads have ended; once a stop is requested, not for ever.

        Args:
          threads: threads to wait for in addition to the registered ones.
          stop_grace_period_secs: how long threads may take to end after the stop.
          ignore_live_threads: whether to return although some have not ended by then.

        Raises:
          BaseException: what a stop was requested with.
          RuntimeError: if threads have not ended in time; it names them.
        """
        with self._lock:
            awaited = list(self._threads.union(threads or ()))
        self._wait_for_end_or_stop(awaited)
        deadline = time.monotonic() + stop_grace_period_secs
        for thread in awaited:
            if thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))
        stragglers = " ".join(sorted(thread.name for thread in awaited if thread.is_alive()))
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
        """Raises what a stop was requested with, if there is such an exception."""
        with self._lock:
            error = self._requested
        if error is not None:
            raise error

    @contextmanager
    def stop_on_exception(self) -> Iterator[None]:
        """A block whose exceptions become requests to stop, and end there."""
        try:
            yield
        except BaseException as error:
            # Ctrl-C too: the thread that joins the others gets it.
            self.request_stop(error)

    def _wait_for_end_or_stop(self, threads: Iterable[threading.Thread]) -> None:
        for thread in threads:
            while thread.is_alive() and not self.should_stop():
                thread.join(_POLL_S)

    def _unclean(self, ex: Any) -> BaseException | None:
        error = ex[1] if isinstance(ex, tuple) and len(ex) == 3 else ex
        if not isinstance(error, BaseException | None):
            raise TypeError(
                f"a stop is requested with an exception, sys.exc_info() or None, got {ex!r:.80}"
            )
        return None if isinstance(error, self._clean_types) else error

"""The event loop that all servers of this process share, on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import jax

from jflow import _forks
from jflow.xla import internals

T = TypeVar("T")


@_forks.guarded("run")
class LoopThread:
    """An event loop on a daemon thread, started when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Runs a coroutine on the loop and waits for its result; not to be called on the loop.

        Raises:
          TimeoutError: if it takes longer than `timeout` seconds; it is cancelled.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self._started())
        try:
            return future.result(timeout)
        except TimeoutError:
            future.cancel()
            raise

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=_serve, args=(self._loop,), name="jflow servers", daemon=True
                ).start()
            return self._loop


def take_64_bits() -> None:
    """Lets this thread use 64-bit types: whether a graph has them is decided where it is built."""
    jax.enable_x64(True).__enter__()


def run_programs_in_their_threads() -> None:
    """Has CPU programs run in the threads that start them, if JAX has not started yet.

    Otherwise XLA gives the larger ones to a few threads of its own, and one that runs for minutes
    there can keep any other program waiting. A server has threads enough, and needs results anyway.
    """
    if not internals.has_started():
        jax.config.update("jax_cpu_enable_async_dispatch", False)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    take_64_bits()
    loop.run_forever()


SERVERS = LoopThread()
"""gRPC's asyncio layer works best with one loop a process."""

"""The event loop shared by all servers of this process, on a thread of its own."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import jax

from jflow.base import forks
from jflow.plan.xla import internals

T = TypeVar("T")


@forks.guarded("run_coroutine")
class LoopThread:
    """An event loop on a daemon thread, started at its first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def run_coroutine(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Runs a coroutine on the loop and waits for its result. Must not be called on the loop.

        Raises:
          TimeoutError: if it takes longer than `timeout` seconds; it is cancelled.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self._start_loop())
        try:
            return future.result(timeout)
        except TimeoutError:
            future.cancel()
            raise

    def _start_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=_serve, args=(self._loop,), name="jflow servers", daemon=True
                ).start()
            return self._loop


def take_64_bits() -> None:
    """Enables 64-bit types in this thread; clients decide whether their graphs use them."""
    jax.enable_x64(True).__enter__()


def run_programs_in_their_threads() -> None:
    """Makes CPU programs run in the threads that start them, unless JAX has started.

    Otherwise XLA runs larger programs on a few threads of its own, where one that takes minutes can
    block all others. A server has enough threads, and waits for the results in any case.
    """
    if not internals.has_started():
        jax.config.update("jax_cpu_enable_async_dispatch", False)


def exempt_from_collection() -> None:
    """Exempts existing objects from garbage collection, in a process that only serves.

    A full collection traverses all objects of the imported libraries, for 0.1 s and more, and
    nothing else runs in the process meanwhile.
    """
    gc.collect()
    gc.freeze()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    take_64_bits()
    loop.run_forever()


SERVERS = LoopThread()
"""The loop of the servers; gRPC's asyncio API supports one loop per process best."""

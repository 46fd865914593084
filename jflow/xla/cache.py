"""Cache of the executables of a process: each program is compiled once per device."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future

import jax

from jflow.xla.compile import CompiledProgram, compile_exported

_Key = tuple[str, str, tuple[int, ...]]


class ProgramCache:
    """A thread-safe LRU cache of executables by the digests of their programs.

    Threads that request the same program at the same time share one compilation.

    Args:
      capacity: maximum number of executables; registered plans keep theirs in any case.

    Attributes:
      n_compiled: number of compilations so far.
    """

    def __init__(self, capacity: int = 512) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._executables: OrderedDict[_Key, Future[CompiledProgram]] = OrderedDict()
        self.n_compiled = 0

    def has(self, digest: str, device: jax.Device, donated: tuple[int, ...]) -> bool:
        """Whether the program is compiled or being compiled."""
        with self._lock:
            return (digest, str(device), donated) in self._executables

    def get(
        self,
        digest: str,
        device: jax.Device,
        donated: tuple[int, ...],
        source: Callable[[], bytes],
    ) -> CompiledProgram:
        """Returns the executable, compiled from `source()` if it is not cached.

        Raises:
          InvalidArgumentError: if the program cannot be compiled; the failure is not cached.
        """
        key = (digest, str(device), donated)
        with self._lock:
            future = self._executables.get(key)
            mine = future is None
            if future is None:
                future = self._executables[key] = Future()
                future.set_running_or_notify_cancel()  # waiters cannot cancel it
            self._executables.move_to_end(key)
        if mine:
            self._compile(key, device, future, source)
        return future.result()

    def begun(
        self, digest: str, device: jax.Device, donated: tuple[int, ...]
    ) -> Future[CompiledProgram] | None:
        """Returns the finished or running compilation of a program, or None."""
        with self._lock:
            return self._executables.get((digest, str(device), donated))

    def _compile(
        self,
        key: _Key,
        device: jax.Device,
        future: Future[CompiledProgram],
        source: Callable[[], bytes],
    ) -> None:
        try:
            executable = compile_exported(source(), device, key[2])
        except BaseException as error:
            with self._lock:
                self._executables.pop(key, None)
            future.set_exception(error)
            raise
        with self._lock:
            self.n_compiled += 1
            while len(self._executables) > self._capacity:
                self._executables.popitem(last=False)
        future.set_result(executable)

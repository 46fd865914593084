"""Executables of an eager resource: each operation that plain Python uses, compiled once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from jflow.deadline import Deadline
from jflow.graph import Graph, Operation, Tensor
from jflow.graph.owners import EagerOwner, Runnable

Build = Callable[[], tuple[Operation, Sequence[Tensor]]]
"""Adds an operation to the graph; returns it and the tensors that it is fed."""


class Executables:
    """The executables of one eager resource. Threads may use them at the same time.

    Args:
      owner: the connection, which runs them.
      graph: the resource's own graph.
    """

    def __init__(self, owner: EagerOwner, graph: Graph) -> None:
        self._owner = owner
        self._graph = graph
        self._lock = threading.Lock()
        self._ready: dict[str, Runnable] = {}

    def run(
        self, key: str, build: Build, feeds: Sequence[Any], timeout: float | None = None
    ) -> list[Any]:
        """Runs an operation at once and returns its values.

        Args:
          key: names the operation.
          build: makes it, the first time.
          feeds: arrays for what it is fed.
          timeout: longest time for the call in seconds, None for the connection's. With 0 the
            operation does not wait for anything once its executable is ready.

        Raises:
          DeadlineExceededError: if the time is over; nothing is taken or added then.
        """
        executable, deadline = self._prepared(key, build, timeout)
        return executable.run(feeds, deadline)

    def start(
        self, key: str, build: Build, feeds: Sequence[Any], timeout: float | None = None
    ) -> Future[list[Any]]:
        """As `run`, without blocking; cancelling the future cancels the operation."""
        executable, deadline = self._prepared(key, build, timeout)
        return executable.start(feeds, deadline)

    def _prepared(self, key: str, build: Build, timeout: float | None) -> tuple[Runnable, Deadline]:
        # No time to wait for an element is still the connection's time to compile.
        ready_by = Deadline(timeout or self._owner.timeout)
        executable = self._ready.get(key)
        if executable is None:
            executable = self._made(key, build, ready_by)
        if timeout != 0:
            return executable, ready_by
        executable.prepare(ready_by)
        return executable, Deadline(0.0)

    def _made(self, key: str, build: Build, deadline: Deadline) -> Runnable:
        with deadline.holding(self._lock, f"waiting for {key!r} to be made ready"):
            executable = self._ready.get(key)
            if executable is None:
                with self._graph.as_default():
                    op, fed = build()
                executable = self._owner.step(self._graph, op, op.outputs, fed, deadline)
                self._ready[key] = executable
        deadline.check(f"compiling {key!r}")
        return executable

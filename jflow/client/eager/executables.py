"""Executables of an eager resource; each operation that plain Python calls is compiled once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from jflow.base.deadline import Deadline
from jflow.compiler.graph import Graph, Operation, Tensor
from jflow.compiler.graph.owners import EagerOwner, Runnable
from jflow.errors import DeadlineExceededError

FedOperation = tuple[Operation, Sequence[Tensor]]
"""An operation of the graph, and the tensors to feed."""

Build = Callable[[], FedOperation]
"""Adds an operation to the graph."""


class Executables:
    """The executables of one eager resource; thread-safe.

    Args:
      owner: the connection, which runs them.
      graph: the resource's own graph.
      describe: returns the repr of the resource, for messages.
    """

    def __init__(self, owner: EagerOwner, graph: Graph, describe: Callable[[], str]) -> None:
        self._owner = owner
        self._graph = graph
        self._describe = describe
        self._lock = threading.Lock()
        self._ready: dict[str, Runnable] = {}

    def run_operation(
        self, key: str, build: Build, feeds: Sequence[Any] = (), timeout: float | None = None
    ) -> list[Any]:
        """Runs an operation and returns the fetched values.

        Args:
          key: the name of the operation, which errors mention.
          build: adds it to the graph; called once.
          feeds: arrays for the tensors to feed.
          timeout: time limit of the call in seconds; None for the connection's. With 0 the
            operation does not wait for anything once its executable is ready.

        Raises:
          DeadlineExceededError: if the time limit passes; then nothing was taken or added.
        """
        try:
            executable, deadline = self._prepared(key, build, timeout)
            return executable.run(feeds, deadline)
        except DeadlineExceededError as error:
            self._explain(error, key)
            raise

    def start(
        self, key: str, build: Build, feeds: Sequence[Any], timeout: float | None = None
    ) -> Future[list[Any]]:
        """Starts an operation without blocking; cancelling the future cancels the operation.

        Arguments and errors are those of `run_operation`.
        """
        executable, deadline = self._prepared(key, build, timeout)
        started = executable.start(feeds, deadline)
        if timeout is not None:
            started.add_done_callback(lambda future: self._explain_result(future, key))
        return started

    def _prepared(self, key: str, build: Build, timeout: float | None) -> tuple[Runnable, Deadline]:
        # A timeout of 0 means not to wait for elements. Compiling still has the connection's time.
        ready_by = Deadline(timeout or self._owner.timeout)
        executable = self._ready.get(key)
        if executable is None:
            executable = self._compiled(key, build, ready_by)
        if timeout != 0:
            return executable, ready_by
        executable.prepare(ready_by)
        return executable, Deadline(0.0)

    def _compiled(self, key: str, build: Build, deadline: Deadline) -> Runnable:
        with deadline.holding(self._lock, f"waiting for {key!r} to be compiled"):
            executable = self._ready.get(key)
            if executable is None:
                with self._graph.as_default():
                    op, fed = build()
                executable = self._owner.step(self._graph, op, op.outputs, fed, deadline)
                self._ready[key] = executable
        deadline.check(f"compiling {key!r}")
        return executable

    def _explain(self, error: BaseException | None, key: str) -> None:
        """Adds the operation and the resource to the message of a DeadlineExceededError."""
        if isinstance(error, DeadlineExceededError):
            error.with_context(doing=f"{key} on {self._describe()}")

    def _explain_result(self, future: Future[Any], key: str) -> None:
        if not future.cancelled():
            self._explain(future.exception(), key)

"""Steps of a live resource: each operation that plain Python uses, made ready once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from jflow.deadline import Deadline
from jflow.graph import Graph, Operation, Tensor, owners

Build = Callable[[], tuple[Operation, Sequence[Tensor]]]
"""Adds an operation to the graph; gives it and the tensors that it is fed."""


class LiveSteps:
    """The steps of one live resource. Threads may use them at the same time.

    Args:
      owner: who runs them; None for a resource of graph code.
      graph: the resource's own.
    """

    def __init__(self, owner: owners.EagerOwner | None, graph: Graph) -> None:
        self._owner = owner
        self._graph = graph
        self._lock = threading.Lock()
        self._steps: dict[str, owners.Executable] = {}

    def run(
        self, key: str, build: Build, feeds: Sequence[Any], timeout: float | None = None
    ) -> list[Any]:
        """Runs an operation at once and gives its values.

        Args:
          key: names the operation.
          build: makes it, the first time.
          feeds: arrays for what it is fed.
          timeout: longest time for the call in seconds, None for the connection's. With 0 the
            operation does not wait for anything once it is ready.

        Raises:
          RuntimeError: if the resource is not live.
          DeadlineExceededError: if the time is over; nothing is taken or added then.
        """
        step, deadline = self._step(key, build, timeout)
        return step.run(feeds, deadline)

    def start(
        self, key: str, build: Build, feeds: Sequence[Any], timeout: float | None = None
    ) -> Future[list[Any]]:
        """As `run`, and waits for nothing; cancelling the future gives the operation up."""
        step, deadline = self._step(key, build, timeout)
        return step.start(feeds, deadline)

    def _step(
        self, key: str, build: Build, timeout: float | None
    ) -> tuple[owners.Executable, Deadline]:
        if self._owner is None:
            raise RuntimeError(
                "this is graph code: run the operation in a session, or make the resource inside "
                "`with jflow.connect(target):` to use it from plain Python"
            )
        # No time to wait for an element is still the connection's time to make the step ready.
        ready_by = Deadline(timeout or self._owner.timeout)
        step = self._steps.get(key)
        if step is None:
            step = self._made(self._owner, key, build, ready_by)
        if timeout != 0:
            return step, ready_by
        step.prepare(ready_by)
        return step, Deadline(0.0)

    def _made(
        self, owner: owners.EagerOwner, key: str, build: Build, deadline: Deadline
    ) -> owners.Executable:
        with deadline.holding(self._lock, f"waiting for {key!r} to be made ready"):
            step = self._steps.get(key)
            if step is None:
                with self._graph.as_default():
                    op, fed = build()
                step = self._steps[key] = owner.step(self._graph, op, op.outputs, fed, deadline)
        deadline.check(f"compiling {key!r}")
        return step

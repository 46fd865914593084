"""Steps of a live resource: each operation that plain Python uses, made ready once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from jflow.graph import Graph, Operation, Tensor, live

Build = Callable[[], tuple[Operation, Sequence[Tensor]]]
"""Adds an operation to the graph; gives it and the tensors that it is fed."""


class LiveSteps:
    """The steps of one live resource. Threads may use them at the same time.

    Args:
      keeper: who runs them; None for a resource of graph code.
      graph: the resource's own.
    """

    def __init__(self, keeper: live.LiveKeeper | None, graph: Graph) -> None:
        self._keeper = keeper
        self._graph = graph
        self._lock = threading.Lock()
        self._steps: dict[str, live.Runnable] = {}

    def run(
        self, key: str, build: Build, feeds: Sequence[Any], timeout: float | None = None
    ) -> list[Any]:
        """Runs an operation at once and gives its values.

        Args:
          key: names the operation.
          build: makes it, the first time.
          feeds: arrays for what it is fed.
          timeout: longest time to wait in seconds; None for the connection's.

        Raises:
          RuntimeError: if the resource is not live.
          DeadlineExceededError: if the time is over; nothing is taken or added then.
        """
        step, limit = self._step(key, build)
        return step.run(feeds, limit if timeout is None else timeout)

    def start(
        self, key: str, build: Build, feeds: Sequence[Any], timeout: float | None = None
    ) -> Future[list[Any]]:
        """As `run`, and waits for nothing; cancelling the future gives the operation up."""
        step, limit = self._step(key, build)
        return step.start(feeds, limit if timeout is None else timeout)

    def _step(self, key: str, build: Build) -> tuple[live.Runnable, float | None]:
        if self._keeper is None:
            raise RuntimeError(
                "this is graph code: run the operation in a session, or make the resource inside "
                "`with jflow.connect(target):` to use it from plain Python"
            )
        with self._lock:
            step = self._steps.get(key)
            if step is None:
                with self._graph.as_default():
                    op, fed = build()
                step = self._steps[key] = self._keeper.step(self._graph, op, op.outputs, fed)
        return step, self._keeper.timeout

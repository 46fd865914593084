"""`StartedStep`: the future of a step that a session has started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from jflow.base.values import Array
from jflow.client.runtime.steps import add_origin
from jflow.compiler.graph import Graph
from jflow.errors import OpError


class StartedStep(Future[Any]):
    """The future result of `Session.run_async`; cancelling it cancels the step.

    Args:
      running: the values of the step.
      fill: makes the structure of the fetches of them.
      graph: that of the session, for the lines of operations in errors.
    """

    def __init__(
        self,
        running: Future[list[Array]],
        fill: Callable[[Sequence[Array]], Any],
        graph: Graph,
    ) -> None:
        super().__init__()
        self._running, self._fill, self._graph = running, fill, graph
        running.add_done_callback(self._end)

    def cancel(self) -> bool:
        """Cancels the step, which may have been applied in part; False if it has ended."""
        self._running.cancel()
        return self.cancelled()

    def _end(self, running: Future[list[Array]]) -> None:
        if running.cancelled():
            super().cancel()
            self.set_running_or_notify_cancel()
            return
        error = running.exception()
        try:
            if error is None:
                self.set_result(self._fill(running.result()))
                return
        except Exception as failure:  # the constructor of a user's class failed
            error = failure
        if isinstance(error, OpError):
            add_origin(error, self._graph)
        self.set_exception(error)

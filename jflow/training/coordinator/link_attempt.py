"""An attempt to run closures on a worker, as a link starts and stops it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from time import perf_counter
from typing import Any

from jflow.client.functions import Concrete
from jflow.client.runtime.backend import stop_step
from jflow.state.effects import Effect
from jflow.training.coordinator.closures import ScheduledClosure
from jflow.training.coordinator.layout import PLAIN, AttemptLayout


class LinkAttempt:
    """An attempt to run closures on a worker.

    Args:
      number: the scheduler's number of it.
      closures: the closures, all of one program.
      effect: what makes the runtime apply its writes once; None for at least once.

    Attributes:
      layout: where inputs come from and results go; set before it is started.
      elsewhere: the closures whose results it reads from workers; likewise.
      results: the results of all closures, one after the other, once it has ended well.
      dispatch_s: the processor time that it took to start it, in seconds.
    """

    def __init__(
        self,
        number: int,
        closures: Sequence[ScheduledClosure],
        effect: Effect | None,
    ) -> None:
        self.number = number
        self.closures = closures
        self.effect = effect
        self.layout: AttemptLayout = PLAIN
        self.elsewhere: tuple[int, ...] = ()
        self.started = perf_counter()
        self.is_cancelled = False
        self.concrete: Concrete | None = None
        self.args: Sequence[Any] = ()
        self.results: list[Any] = []
        self.dispatch_s: float | None = None
        self._future: Future[list[Any]] | None = None
        self.elements: dict[int, list[Any]] = {**closures[0].elements}

    @property
    def key(self) -> tuple[int, int, AttemptLayout]:
        """The key of the attempt's program on a worker."""
        return self.closures[0].program.number, len(self.closures), self.layout

    @property
    def takes_elements(self) -> bool:
        """Whether the attempt has still to take elements of datasets."""
        return self.closures[0].takes_elements(self.elements)

    def set_future(self, future: Future[list[Any]]) -> None:
        """Stores the future of the attempt's step."""
        self._future = future
        if self.is_cancelled:
            stop_step(future)

    def clear_future(self) -> None:
        """Drops the future of the step, which refers to this attempt, to break the cycle."""
        self._future = None

    def cancel(self) -> None:
        """Cancels the attempt's step, or prevents its start."""
        self.is_cancelled = True
        future = self._future
        if future is not None:
            stop_step(future)

    def arguments(self, worker: int, wait_s: float) -> Sequence[Any] | None:
        """Returns the arguments of the closures; None if elements were not read yet."""
        if len(self.closures) == 1:
            closure = self.closures[0]
            args = closure.arguments(worker, self.elements, wait_s, self.elsewhere)
            if args is None or self.layout is PLAIN:
                return args
            numbers = [*self.elsewhere]
            if self.layout.table is not None:
                numbers.append(closure.remote_value.number)
            return self.layout.arguments(args, numbers)
        args_of_all: list[Any] = []
        for closure in self.closures:
            args_of_all += closure.base_args
        return args_of_all

    def results_at(self, position: int, n: int) -> list[Any]:
        """Returns the `n` results of the closure at a position."""
        return self.results[position * n : (position + 1) * n]

    def feeds(self) -> list[Any]:
        """Returns the values to feed to the attempt's step."""
        if self.layout is not PLAIN:
            assert self.concrete is not None
            return self.concrete.feeds(self.args)
        if len(self.closures) == 1:
            return self.closures[0].feeds(self.args)
        return [feed for closure in self.closures for feed in closure.feeds(closure.base_args)]

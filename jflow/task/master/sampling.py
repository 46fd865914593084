"""`StepSampler`: traces the next steps of a master's clients for observers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress

from jflow.base.deadline.clock import boot_id, now
from jflow.errors import InvalidArgumentError
from jflow.plan import Plan
from jflow.plan.trace.record import TaskRecord
from jflow.plan.trace.samples import MAX_STEPS, SampledStep, StepSamples, sampled

_LOG = logging.getLogger(__name__)
_MAX_S = 600.0
"""The longest time for which steps are waited for, in seconds."""


class _Request:
    """An observer's request for some steps, and those that there are."""

    def __init__(self, n_wanted: int) -> None:
        self.n_wanted = n_wanted
        self.steps: list[SampledStep] = []
        self.is_done = asyncio.Event()


class StepSampler:
    """Traces the next steps of a master's clients. Call it on the event loop only.

    Attributes:
      is_open: whether the next step that begins is to be traced.
    """

    def __init__(self) -> None:
        self.is_open = False
        self._requests: list[_Request] = []

    async def sample(self, n_steps: int, seconds: float) -> StepSamples:
        """Waits until `n_steps` have ended, or for as long as `seconds`, and returns them.

        Raises:
          InvalidArgumentError: if the number of steps is not from 1 to `MAX_STEPS`.
        """
        if not 1 <= n_steps <= MAX_STEPS:
            raise InvalidArgumentError(f"expected from 1 to {MAX_STEPS} steps, got {n_steps}")
        begun, request = now(), _Request(n_steps)
        self._requests.append(request)
        self.is_open = True
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(max(seconds, 0.0), _MAX_S)):
                    await request.is_done.wait()
        finally:
            self._requests.remove(request)
            self._look()
        return StepSamples(begun, now(), boot_id(), tuple(request.steps))

    def add(self, plans: Iterable[Plan], records: Iterable[TaskRecord]) -> None:
        """Takes a step that was traced."""
        try:
            step = sampled(plans, records)
        except Exception:  # the step has succeeded, whatever becomes of its trace
            _LOG.exception("a step could not be traced for an observer")
            return
        for request in self._requests:
            if len(request.steps) < request.n_wanted:
                request.steps.append(step)
                if len(request.steps) == request.n_wanted:
                    request.is_done.set()
        self._look()

    def _look(self) -> None:
        self.is_open = any(not request.is_done.is_set() for request in self._requests)

"""`SlowSteps`: logs the slow steps of a task, and what they wait for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from jflow.base.logs import event
from jflow.state.watch import StatusRequest, StepStatus

_LOG = logging.getLogger(__name__)
_REQUEST = StatusRequest(("steps",))

Listed = Callable[[StatusRequest], tuple[int, tuple[StepStatus, ...]]]


class SlowSteps:
    """Polls the running steps periodically and logs slow ones, at no cost per step.

    Call it on the event loop only.

    Args:
      list_steps: lists the running steps, the oldest first.
      limit: how long a step may take before it is logged, in seconds.
    """

    def __init__(self, list_steps: Listed, limit: float) -> None:
        self._list_steps = list_steps
        self._limit = limit
        self._slow: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Starts to check, at intervals of half the limit, if slow steps are logged at all."""
        if _LOG.isEnabledFor(logging.INFO):
            self._schedule()

    def stop(self) -> None:
        """Stops checking. May be called again."""
        if self._timer is not None:
            self._timer.cancel()

    def look(self) -> None:
        """Logs steps that have become slow, and slow ones that have ended."""
        _, steps = self._list_steps(_REQUEST)
        slow = {step.step: step for step in steps if step.age_s >= self._limit}
        for number, age in self._slow.items():
            if number not in slow:
                event(_LOG, logging.INFO, "slow_step_ended", step=number, at_least_s=round(age, 1))
        for number, step in slow.items():
            if number not in self._slow:
                event(
                    _LOG,
                    logging.INFO,
                    "slow_step",
                    step=number,
                    age_s=round(step.age_s, 1),
                    devices=", ".join(step.devices),
                    waits="; ".join(step.waiting_for) or "computes",
                )
        self._slow = {number: step.age_s for number, step in slow.items()}

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._limit / 2, self._tick)

    def _tick(self) -> None:
        self.look()
        self._schedule()

"""Runs the plans of a step that stays in this process, in the caller's thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jflow.plan import Feed, Fetch, Recv, Send
from jflow.resources import Store
from jflow.wire import Array
from jflow.worker.bound import BoundPlan, BoundRun, BoundStep
from jflow.worker.frame import Frame, host_array


class InlineStep:
    """All plans of a step, to be run together in the caller's thread.

    No thread has to wait: what a stage receives was sent by stages before it. Devices still work
    side by side, for JAX computes in the background.

    Args:
      plans: one for each device.
      n_fetches: how many values the step gives back.
      store: the variables.
    """

    def __init__(self, plans: Sequence[BoundPlan], n_fetches: int, store: Store) -> None:
        self._plans = plans
        self._n_fetches = n_fetches
        self._store = store
        self._writes_state = any(bound.writes_state for bound in plans)

    def run(self, feeds: Sequence[Array]) -> list[Array]:
        """Runs the step and returns the fetched values.

        Raises:
          OpError: as the steps do.
        """
        if self._writes_state:
            # JAX may use the caller's memory until an update is done, which nobody waits for.
            feeds = [np.array(feed) for feed in feeds]
        return _run(self._plans, feeds, self._n_fetches, self._store)


def _run(
    plans: Sequence[BoundPlan], feeds: Sequence[Array], n_fetches: int, store: Store
) -> list[Array]:
    """Runs every plan, stage by stage, and returns the fetched values."""
    fetched: list[Any] = [None] * n_fetches
    wires: dict[int, Any] = {}
    frames = [Frame(bound, store) for bound in plans]
    try:
        for stage in range(max((len(bound.stages) for bound in plans), default=0)):
            for bound, frame in zip(plans, frames, strict=True):
                for step in bound.stages[stage] if stage < len(bound.stages) else ():
                    _do(step, bound, frame, feeds, wires, fetched)
        # Fetched last, so that no device waits for another one's results.
        return [host_array(value, copy=leased) for value, leased in fetched]
    finally:
        for frame in frames:
            frame.close()


def _do(
    step: BoundStep,
    bound: BoundPlan,
    frame: Frame,
    feeds: Sequence[Array],
    wires: dict[int, Any],
    fetched: list[Any],
) -> None:
    match step:
        case BoundRun():
            frame.take_turn(step)
        case Feed():
            frame[step.slot] = feeds[step.index]
        case Send():
            wires[step.edge] = None if step.slot is None else frame[step.slot]
        case Recv():
            value = wires.pop(step.edge)
            if step.slot is not None:
                frame[step.slot] = jax.device_put(value, bound.device)
        case Fetch():
            fetched[step.index] = (frame[step.slot], frame.is_leased(step.slot))

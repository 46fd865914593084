"""Runs the plans of a step that stays in this process, in the caller's thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jflow.plan import Feed, Fetch, Recv, Send
from jflow.resources import Store
from jflow.wire import Array
from jflow.worker.bound import BoundCall, BoundPlan, BoundRun, BoundStep
from jflow.worker.devices import put
from jflow.worker.frame import Frame


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
        # Sorted out here, so that a step does nothing but its work.
        self._feeds: list[tuple[int, Feed]] = []
        self._work: list[tuple[int, BoundRun | BoundCall | Send | Recv]] = []
        self._fetches: list[tuple[int, Fetch]] = []
        for stage in range(max((len(bound.stages) for bound in plans), default=0)):
            for number, bound in enumerate(plans):
                for step in bound.stages[stage] if stage < len(bound.stages) else ():
                    self._add(number, step)

    def _add(self, number: int, step: BoundStep) -> None:
        match step:
            case Feed():
                self._feeds.append((number, step))
            case Fetch():
                self._fetches.append((number, step))
            case BoundRun() | BoundCall() | Send() | Recv():
                self._work.append((number, step))

    def run(self, feeds: Sequence[Array]) -> list[Array]:
        """Runs the step and returns the fetched values.

        Raises:
          OpError: as the steps do.
        """
        if self._writes_state:
            # JAX may use the caller's memory until an update is done, which nobody waits for.
            feeds = [np.array(feed) for feed in feeds]
        frames = [Frame(bound, self._store) for bound in self._plans]
        try:
            for number, feed in self._feeds:
                frames[number][feed.slot] = feeds[feed.index]
            wires: dict[int, Any] = {}
            for number, step in self._work:
                if isinstance(step, BoundRun):
                    frames[number].take_turn(step)
                elif isinstance(step, BoundCall):
                    frames[number].call(step)
                elif isinstance(step, Send):
                    wires[step.edge] = None if step.slot is None else frames[number][step.slot]
                else:
                    self._receive(step, number, frames[number], wires)
            return self._fetched(frames)
        finally:
            for frame in frames:
                frame.close()

    def _receive(self, step: Recv, number: int, frame: Frame, wires: dict[int, Any]) -> None:
        value = wires.pop(step.edge)
        if step.slot is not None:
            frame[step.slot] = put(value, self._plans[number].device)

    def _fetched(self, frames: Sequence[Frame]) -> list[Array]:
        # Read last, so that no device waits for another one's results.
        values: list[Any] = [None] * self._n_fetches
        for number, fetch in self._fetches:
            values[fetch.index] = frames[number].host(fetch.slot, copy=True)
        return values

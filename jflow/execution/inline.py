"""Runs the plans of a step that stays in this process, in the caller's thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jflow.execution.bound import BoundCall, BoundPlan, BoundRun, BoundStep
from jflow.execution.devices import put
from jflow.execution.frame import Frame
from jflow.graph import Array
from jflow.plan import Feed, Fetch, Recv, Send, Slot
from jflow.resources import Store


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
        lone = self._lone_program()
        self._program = lone.executable if lone else None
        self._constants = lone.constants if lone else ()

    def _add(self, number: int, step: BoundStep) -> None:
        match step:
            case Feed():
                self._feeds.append((number, step))
            case Fetch():
                self._fetches.append((number, step))
            case BoundRun() | BoundCall() | Send() | Recv():
                self._work.append((number, step))

    def _lone_program(self) -> BoundRun | None:
        """The step's program, if running it on what is fed and fetching its results is all."""
        match self._work:
            case [(_, BoundRun() as run)] if run.executable and not run.uses_variables:
                fed = tuple(feed.slot for _, feed in self._feeds)
                in_order = [feed.index for _, feed in self._feeds] == list(range(len(fed)))
                fetched = sorted((fetch.index, fetch.slot) for _, fetch in self._fetches)
                slots = tuple(slot for _, slot in fetched)
                if in_order and (fed, slots) == (run.step.inputs, run.step.outputs):
                    return run
        return None

    def run(self, feeds: Sequence[Array], timeout: float | None = None) -> list[Array]:
        """Runs the step and returns the fetched values; no timeout can interrupt it.

        Raises:
          OpError: as the steps do.
        """
        if self._program is not None:
            return list(map(np.asarray, self.compute(feeds)))
        return self._run(feeds, lambda frame, slot: frame.host(slot, copy=True))

    def compute(self, feeds: Sequence[Any], timeout: float | None = None) -> list[jax.Array]:
        """As `run`, with JAX arrays, which may still be on their way."""
        if self._program is None:
            return self._run(feeds, Frame.array)
        try:
            return self._program(*feeds, *self._constants)
        except (TypeError, ValueError):
            # More may be fed than needed, and JAX does not move an array that is elsewhere.
            return self._run(feeds, Frame.array)

    def _run(self, feeds: Sequence[Any], fetch: Callable[[Frame, Slot], Any]) -> list[Any]:
        if self._writes_state:
            # JAX may use the caller's memory until an update is done, which nobody waits for.
            feeds = [np.array(x) if isinstance(x, np.ndarray) else x for x in feeds]
        frames = [Frame(bound, self._store) for bound in self._plans]
        try:
            for number, feed in self._feeds:
                frames[number][feed.slot] = self._fed(feeds[feed.index], number)
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
            # Read last, so that no device waits for another one's results.
            values: list[Any] = [None] * self._n_fetches
            for number, wanted in self._fetches:
                values[wanted.index] = fetch(frames[number], wanted.slot)
            return values
        finally:
            for frame in frames:
                frame.close()

    def _fed(self, value: Any, number: int) -> Any:
        """A fed value as the device takes it: JAX itself moves only what is not an array of its."""
        device = self._plans[number].device
        if isinstance(value, jax.Array) and value.devices() != {device}:
            return jax.device_put(value, device)
        return value

    def _receive(self, step: Recv, number: int, frame: Frame, wires: dict[int, Any]) -> None:
        value = wires.pop(step.edge)
        if step.slot is not None:
            frame[step.slot] = put(value, self._plans[number].device)

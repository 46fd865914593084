"""Runs the plans of a step that stays in this process, in the caller's thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jflow.plan import Feed, Fetch, Recv, Send
from jflow.resources import Store
from jflow.worker.bound import BoundPlan, BoundRun, BoundStep
from jflow.worker.frame import Frame, host_array


def run_inline(
    plans: Sequence[BoundPlan], feeds: Sequence[np.ndarray[Any, Any]], n_fetches: int, store: Store
) -> list[np.ndarray[Any, Any]]:
    """Runs every plan of a step, stage by stage, and returns the fetched values.

    No thread has to wait: what a stage receives was sent by stages before it. Devices still work
    side by side, for JAX computes in the background.

    Raises:
      OpError: as the steps do.
    """
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
    feeds: Sequence[np.ndarray[Any, Any]],
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

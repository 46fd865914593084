"""Rendezvous: matches values that plans send with the plans that receive them.

A state machine without I/O: it keeps values that arrive before they are wanted, and returns the
waiter when its value arrives. The caller chooses what a waiter is and wakes it.

Invariants:

* For one edge of a step there is a kept value or a waiter, never both, because `deliver` and `take`
  each look for the other one first. An edge carries one value per step.
* A step is in one of three states: *early* (values arrived before `open`; in `_steps` and
  `_early`), *open* (in `_steps` only) or *ended* (in `_ended` only). `take` requires an open step.
* Memory is bounded although a value may arrive before its step is opened, or after it has ended
  (the sender failed or was slow): both sets forget their oldest members. What is forgotten is a
  step that was never opened here, or a late value, which is then kept as an early one until it is
  forgotten in its turn. A running step is never forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from jflow.errors import InternalError

Waiter = TypeVar("Waiter")


@dataclass(frozen=True)
class Kept:
    """A value that arrived before it was wanted; a wrapper, because the value may be None."""

    value: Any


@dataclass
class _Step(Generic[Waiter]):
    kept: dict[int, Kept] = field(default_factory=dict)
    waiters: dict[int, Waiter] = field(default_factory=dict)


class Rendezvous(Generic[Waiter]):
    """Values and waiters by step and edge.

    Args:
      memory: how many ended steps, and how many steps that are not open yet, to remember.
    """

    def __init__(self, memory: int = 4096) -> None:
        self._memory = memory
        self._steps: dict[int, _Step[Waiter]] = {}
        self._early: OrderedDict[int, None] = OrderedDict()
        self._ended: OrderedDict[int, None] = OrderedDict()

    def open(self, step: int) -> None:
        """Marks the beginning of a step on this task."""
        self._early.pop(step, None)
        self._steps.setdefault(step, _Step())

    def deliver(self, step: int, edge: int, value: Any) -> Waiter | None:
        """Takes a value that arrived; returns the waiter for it.

        Returns:
          None if nothing waits: the value is kept, or dropped if its step has ended.

        Raises:
          InternalError: if the edge has a value already.
        """
        if step in self._ended:
            return None
        state = self._steps.get(step) or self._begin_early(step)
        waiter = state.waiters.pop(edge, None)
        if waiter is None:
            if edge in state.kept:
                raise InternalError(f"edge {edge} of step {step:x} was sent twice")
            state.kept[edge] = Kept(value)
        return waiter

    def take(self, step: int, edge: int, waiter: Waiter) -> Kept | None:
        """The value if it has arrived; otherwise None, and `deliver` will return `waiter`.

        Raises:
          KeyError: if the step is not open.
        """
        state = self._steps[step]
        kept = state.kept.pop(edge, None)
        if kept is None:
            state.waiters[edge] = waiter
        return kept

    def end(self, step: int) -> None:
        """Marks the end of a step: drops its values, and those that arrive later."""
        self._steps.pop(step, None)
        self._early.pop(step, None)
        self._ended[step] = None
        if len(self._ended) > self._memory:
            self._ended.popitem(last=False)

    def __len__(self) -> int:
        return len(self._steps)

    def _begin_early(self, step: int) -> _Step[Waiter]:
        """Begins to keep the values of a step that is not open yet."""
        self._early[step] = None
        if len(self._early) > self._memory:
            oldest, _ = self._early.popitem(last=False)
            del self._steps[oldest]
        state = self._steps[step] = _Step()
        return state

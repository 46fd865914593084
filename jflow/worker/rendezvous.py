"""Rendezvous of values that other plans send with the plans that wait for them.

A plain state machine: it keeps values that come before they are wanted, and hands waiters back to
its caller when their value comes. The caller decides what a waiter is and how it is woken.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from jflow.errors import InternalError

Waiter = TypeVar("Waiter")


@dataclass(frozen=True)
class Kept:
    """A value that was there before it was asked for."""

    value: Any


@dataclass
class _Step(Generic[Waiter]):
    kept: dict[int, Kept] = field(default_factory=dict)
    waiters: dict[int, Waiter] = field(default_factory=dict)


class Rendezvous(Generic[Waiter]):
    """Values and waiters by step and edge.

    A value may come before its step is opened here, or after the step has ended. Steps that were
    never opened and ends are therefore remembered, the oldest of them forgotten.

    Args:
      memory: how many ended steps, and how many steps not opened yet, to remember.
    """

    def __init__(self, memory: int = 4096) -> None:
        self._memory = memory
        self._steps: dict[int, _Step[Waiter]] = {}
        self._early: OrderedDict[int, None] = OrderedDict()
        self._ended: OrderedDict[int, None] = OrderedDict()

    def open(self, step: int) -> None:
        """A step begins to run here."""
        self._early.pop(step, None)
        self._steps.setdefault(step, _Step())

    def deliver(self, step: int, edge: int, value: Any) -> Waiter | None:
        """A value came; returns what waits for it, or None if it is kept (or came too late).

        Raises:
          InternalError: if there was a value under this edge already.
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
        """The value if it is here, else None, and `waiter` will be returned by `deliver`.

        Raises:
          KeyError: if the step is not open.
        """
        state = self._steps[step]
        kept = state.kept.pop(edge, None)
        if kept is None:
            state.waiters[edge] = waiter
        return kept

    def end(self, step: int) -> None:
        """A step has ended here: its values are dropped, those to come as well."""
        self._steps.pop(step, None)
        self._early.pop(step, None)
        self._ended[step] = None
        if len(self._ended) > self._memory:
            self._ended.popitem(last=False)

    def __len__(self) -> int:
        return len(self._steps)

    def _begin_early(self, step: int) -> _Step[Waiter]:
        """A place for the values of a step that has not been opened here."""
        self._early[step] = None
        if len(self._early) > self._memory:
            oldest, _ = self._early.popitem(last=False)
            del self._steps[oldest]
        state = self._steps[step] = _Step()
        return state

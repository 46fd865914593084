"""Where values that other parts send meet the parts that wait for them.

A plain state machine: it keeps values that come before they are wanted, and hands waiters back to
its caller when their value comes. What a waiter is, and how it is woken, is the caller's affair.
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
    is_open: bool = False


class Rendezvous(Generic[Waiter]):
    """Values and waiters by step and edge.

    A value may come before its step is opened here, or after the step has ended. Steps that were
    never opened and ends are therefore remembered, the oldest of them forgotten.

    Args:
      memory: how many ended steps, and how many steps not opened yet, to remember.
    """

    def __init__(self, memory: int = 4096) -> None:
        self._memory = memory
        self._steps: OrderedDict[int, _Step[Waiter]] = OrderedDict()
        self._ended: OrderedDict[int, None] = OrderedDict()

    def open(self, step: int) -> None:
        """A step begins to run here."""
        self._step(step).is_open = True

    def deliver(self, step: int, edge: int, value: Any) -> Waiter | None:
        """A value came; returns who waits for it, or None if it is kept (or came too late).

        Raises:
          InternalError: if there was a value under this edge already.
        """
        if step in self._ended:
            return None
        state = self._step(step)
        waiter = state.waiters.pop(edge, None)
        if waiter is None:
            if edge in state.kept:
                raise InternalError(f"edge {edge} of step {step:x} was sent twice")
            state.kept[edge] = Kept(value)
        return waiter

    def take(self, step: int, edge: int, waiter: Waiter) -> Kept | None:
        """The value if it is here, else None, and `waiter` will be returned by `deliver`."""
        state = self._step(step)
        kept = state.kept.pop(edge, None)
        if kept is None:
            state.waiters[edge] = waiter
        return kept

    def end(self, step: int) -> None:
        """A step has ended here: its values are dropped, those to come as well."""
        self._steps.pop(step, None)
        self._ended[step] = None
        if len(self._ended) > self._memory:
            self._ended.popitem(last=False)

    def __len__(self) -> int:
        return len(self._steps)

    def _step(self, step: int) -> _Step[Waiter]:
        state = self._steps.get(step)
        if state is None:
            state = self._steps[step] = _Step()
            early = [key for key, other in self._steps.items() if not other.is_open]
            if len(early) > self._memory:
                del self._steps[early[0]]
        return state

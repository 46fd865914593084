"""Rendezvous: matches values that plans send with the plans that receive them.

A state machine without I/O: it keeps values that arrive before they are wanted, and returns the
waiter when its value arrives. The caller chooses what a waiter is and wakes it.

Invariants:

* For one edge of a step there is a kept value or a waiter, never both, because `deliver` and
  `receive` each look for the other one first. An edge carries one value per step.
* A step is in one of three states: *early* (values arrived before `open`; in `_steps` and
  `_early`), *open* (in `_steps` only) or *ended* (in `_ended` only). `receive` requires an open
  step.
* Memory is bounded although a value may arrive before its step is opened, or after it has ended
  (the sender failed or was slow). An early value belongs to the stream that brought it, its
  *sender*: it is dropped when that ends (`drop_sender`), when more than `memory` steps are early,
  when it has been early for two sweeps (`sweep`), or to make room (`make_room`). A step of which a
  value was dropped is *lost*: should it open nevertheless, it fails where it takes a value, instead
  of waiting for one that never comes. A running step is never forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from jflow.errors import InternalError, UnavailableError

Waiter = TypeVar("Waiter")

MAX_EARLY_BYTES = 64 << 20
"""How much a stream may bring early. A step begins on all its tasks within milliseconds, and what
comes in these is less; a stream that brings more is not read on until there is room."""

_OVERHEAD_BYTES = 512
"""What an early value counts for in addition to its bytes, which limits the number of them."""


@dataclass(frozen=True)
class EarlyValue:
    """A value that arrived before its receiver; a wrapper, because the value may be None."""

    value: Any


@dataclass
class _Step(Generic[Waiter]):
    early: dict[int, EarlyValue] = field(default_factory=dict)
    waiters: dict[int, Waiter] = field(default_factory=dict)
    senders: dict[int, tuple[Hashable, int]] = field(default_factory=dict)
    """The sender of each early value, and the bytes that it counts for."""


class Rendezvous(Generic[Waiter]):
    """The values and waiters of steps, by step and edge.

    Args:
      memory: how many ended steps, steps that are not open yet, and lost steps to remember.

    Attributes:
      n_opened: how many steps have begun.
    """

    def __init__(self, memory: int = 4096) -> None:
        self.n_opened = 0
        self._memory = memory
        self._steps: dict[int, _Step[Waiter]] = {}
        self._early: OrderedDict[int, None] = OrderedDict()
        self._ended: OrderedDict[int, None] = OrderedDict()
        self._lost: OrderedDict[int, None] = OrderedDict()
        self._n_bytes: dict[Hashable, int] = {}
        self._swept: set[int] = set()

    def open(self, step: int) -> None:
        """Marks a step as open: it has begun on this task."""
        self.n_opened += 1
        if step in self._early:
            del self._early[step]
            self._forget_senders(self._steps[step])
        self._steps.setdefault(step, _Step())

    def deliver(
        self, step: int, edge: int, value: Any, sender: Hashable = None, n_bytes: int = 0
    ) -> Waiter | None:
        """Adds a value that arrived; returns its waiter, if there is one.

        Args:
          step, edge, value: what arrived.
          sender: what it belongs to while it is early.
          n_bytes: its size.

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
            if edge in state.early:
                raise InternalError(f"edge {edge} of step {step:x} was sent twice")
            state.early[edge] = EarlyValue(value)
            if step in self._early:
                counted = n_bytes + _OVERHEAD_BYTES
                state.senders[edge] = sender, counted
                self._n_bytes[sender] = self._n_bytes.get(sender, 0) + counted
        return waiter

    def receive(self, step: int, edge: int, waiter: Waiter) -> EarlyValue | None:
        """Returns a value that has arrived; otherwise None, and `deliver` will return `waiter`.

        Raises:
          KeyError: if the step is not open.
          UnavailableError: if the step is lost.
        """
        state = self._steps[step]
        value = state.early.pop(edge, None)
        if value is None:
            if step in self._lost:
                raise UnavailableError(
                    "a value that another task sent was dropped, because its connection ended, or "
                    "it came long before the step; run the step again"
                )
            state.waiters[edge] = waiter
        return value

    def end_step(self, step: int) -> None:
        """Marks the end of a step: drops its values, and those that arrive later."""
        if step in self._early:
            self.open(step)
        self._steps.pop(step, None)
        self._lost.pop(step, None)
        _remember(self._ended, step, self._memory)

    def waiting(self, step: int) -> Mapping[int, Waiter]:
        """Returns the waiters for values of a step, by edge."""
        state = self._steps.get(step)
        return {} if state is None else state.waiters

    @property
    def has_early(self) -> bool:
        """Whether any value is early."""
        return bool(self._early)

    def is_crowded(self, sender: Hashable) -> bool:
        """Whether the early values of a sender exceed their limit."""
        return self._n_bytes.get(sender, 0) > MAX_EARLY_BYTES

    def make_room(self, sender: Hashable) -> None:
        """Drops the oldest early values of a sender until they are within their limit."""
        for step in list(self._early):
            if not self.is_crowded(sender):
                return
            self._drop(step, sender)

    def drop_sender(self, sender: Hashable) -> None:
        """Drops all early values of a sender."""
        if sender in self._n_bytes:
            for step in list(self._early):
                self._drop(step, sender)

    def sweep(self) -> None:
        """Drops the values that were early at the last sweep too."""
        for step in [step for step in self._early if step in self._swept]:
            self._drop_step(step)
        self._swept = set(self._early)

    def __len__(self) -> int:
        return len(self._steps)

    def _begin_early(self, step: int) -> _Step[Waiter]:
        """Adds an early step, and drops the oldest one if there are too many."""
        self._early[step] = None
        self._swept.discard(step)
        state = self._steps[step] = _Step()
        if len(self._early) > self._memory:
            self._drop_step(next(iter(self._early)))
        return state

    def _drop(self, step: int, sender: Hashable) -> None:
        """Drops the values that a sender brought for an early step."""
        state = self._steps[step]
        edges = [edge for edge, (by, _) in state.senders.items() if by == sender]
        for edge in edges:
            del state.early[edge]
            self._count_off(*state.senders.pop(edge))
        if edges:
            _remember(self._lost, step, self._memory)
        if not state.early:
            del self._early[step], self._steps[step]

    def _drop_step(self, step: int) -> None:
        """Drops all values of an early step."""
        del self._early[step]
        self._forget_senders(self._steps.pop(step))
        _remember(self._lost, step, self._memory)

    def _forget_senders(self, state: _Step[Waiter]) -> None:
        for sender, counted in state.senders.values():
            self._count_off(sender, counted)
        state.senders.clear()

    def _count_off(self, sender: Hashable, counted: int) -> None:
        left = self._n_bytes[sender] - counted
        if left:
            self._n_bytes[sender] = left
        else:
            del self._n_bytes[sender]


def _remember(steps: OrderedDict[int, None], step: int, memory: int) -> None:
    """Adds a step to a bounded memory of steps; removes the oldest if it is full."""
    steps[step] = None
    if len(steps) > memory:
        steps.popitem(last=False)

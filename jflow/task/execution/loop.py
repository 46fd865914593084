"""`LoopState`: a device's part of a loop over devices, in one step.

Each iteration has a `StepState` of its own, with the slots of the body. It is dropped when the
iteration has ended, so a device holds the values of as many iterations as may be under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jflow.base.values import is_string_tensor, is_switched_off
from jflow.plan import Recv
from jflow.state.resources.variable.state import is_computed
from jflow.task.execution.devices import put
from jflow.task.execution.iterations import Instance, Iterations
from jflow.task.execution.linked import LinkedInstruction, LinkedLoop
from jflow.task.execution.step_state import StepState


class LoopState:
    """The iterations of a loop on a device, and the values that go from one to the next.

    Args:
      linked: the loop.
      outer: the state of its plan.

    Attributes:
      linked: the loop.
      iterations: which instances may run.
      states: the states of the iterations under way.
    """

    def __init__(self, linked: LinkedLoop, outer: StepState) -> None:
        self.linked = linked
        loop = linked.instruction
        self.iterations = Iterations(linked.order, loop.trips, loop.window)
        self.states: dict[int, StepState] = {}
        self._outer = outer
        device = linked.body.device
        # On the device once, instead of once for each iteration.
        self._consts = [(inner, _put(outer[slot], device)) for slot, inner in linked.consts]
        self._carried: dict[tuple[int, int], Any] = {}
        for i, carry in enumerate(loop.carries):
            value = _put(outer[carry.init], device)
            self._carried[i, 0] = jnp.copy(value) if i in linked.copied else value
        self._computing: deque[Sequence[jax.Array]] = deque()

    def not_computed(self) -> Iterator[jax.Array]:
        """Yields what must be computed before the next iteration begins.

        A device is given programs before it has run earlier ones; this bounds how many.
        """
        while len(self._computing) > self.linked.instruction.window:
            yield from filter(_is_pending, self._computing.popleft())

    def begin(self) -> tuple[int, Iterator[tuple[int, Sequence[Recv]]]]:
        """Begins the next iteration.

        Returns:
          Its number, and the stages to which values arrive, with their receives.
        """
        linked, number = self.linked, self.iterations.begin()
        edge_of = partial(linked.instruction.edge, iteration=number)
        state = self._outer.for_iteration(linked.body, edge_of)
        for slot, value in self._consts:
            state[slot] = value
        if linked.index is not None:
            loop = linked.instruction
            index = loop.trips - 1 - number if loop.is_reversed else number
            state[linked.index] = np.int32(index)
        for i, slot in enumerate(linked.carried):
            if (i, number) in self._carried:
                state[slot] = self._carried.pop((i, number))
        self.states[number] = state
        arrivals = ((i, one.arrivals) for i, one in enumerate(linked.stages) if one.arrivals)
        return number, arrivals

    def described(self, number: int) -> str:
        """Returns the iteration that is run after `number` others, for messages."""
        loop = self.linked.instruction
        index = loop.trips - 1 - number if loop.is_reversed else number
        return f"iteration {index} of the loop {loop.op!r}"

    def work(self, instance: Instance) -> Sequence[LinkedInstruction]:
        """Returns the instructions of an instance, except its arrivals."""
        return self.linked.stages[instance[0]].work

    def end(self, instance: Instance) -> bool:
        """Records that an instance has ended; returns whether its iteration has."""
        number = instance[1]
        loop, state = self.linked.instruction, self.states[number]
        for i, slot in self.linked.stages[instance[0]].made:
            following = self.states.get(number + 1)
            if following is not None:
                following[self.linked.carried[i]] = state[slot]
            elif number + 1 < loop.trips:
                self._carried[i, number + 1] = state[slot]
            elif (final := loop.carries[i].final) is not None:
                self._outer[final] = state[slot]
        if not self.iterations.end(*instance):
            return False
        slots = (slot for stage in self.linked.stages for slot in stage.results)
        self._computing.append([*filter(_is_pending, (state[slot] for slot in slots))])
        self.states.pop(number).close()
        return True

    def finish(self) -> Iterator[jax.Array]:
        """Ends the loop; yields what must be computed before its inputs may change."""
        for results in self._computing:
            yield from filter(_is_pending, results)
        for slot in self.linked.last_uses:
            self._outer.end_use(slot)

    def close(self) -> None:
        """Drops the iterations under way."""
        for state in self.states.values():
            state.close()
        self.states.clear()


def _put(value: Any, device: jax.Device) -> Any:
    """Returns a value in the memory of the device, so that programs need not move it each time."""
    moved = put(value, device)
    may_move = isinstance(moved, np.ndarray) and not is_string_tensor(moved)
    if not may_move or is_switched_off(moved.dtype):
        return moved
    return jax.device_put(moved, device)


def _is_pending(value: Any) -> bool:
    """Whether a device still computes a value, which no later program has taken over."""
    return isinstance(value, jax.Array) and not is_computed(value)

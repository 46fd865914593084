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
from jflow.plan.xla.hardware import DeviceOrMesh, whole_on
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
        self._n_missing: dict[Instance, int] = {}

    def edge(self, number: int, edge: int) -> int:
        """Returns the edge of the step that an edge of the body is in an iteration."""
        return self._outer.edge_of(self.linked.instruction.edge(edge, number))

    def not_computed(self) -> Iterator[jax.Array]:
        """Yields what must be computed before the next iteration begins.

        A device is given programs before it has run earlier ones; this bounds how many.
        """
        while len(self._computing) > self.linked.instruction.window:
            yield from filter(_is_pending, self._computing.popleft())

    def begin(self) -> tuple[int, Iterator[tuple[Instance, Recv]]]:
        """Begins the next iteration, unless the loop ends before it.

        Returns:
          Its number, and what arrives in it from other devices: the instances that receive it.
        """
        linked, number = self.linked, self.iterations.begin()
        state = self._outer.for_iteration(linked.body, partial(self.edge, number))
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
        if linked.has_fed_predicate:
            self._decide(number)
        return number, self._expected(number)

    def _expected(self, number: int) -> Iterator[tuple[Instance, Recv]]:
        for stage, linked in enumerate(self.linked.stages):
            if linked.arrivals and number in self.states:
                self._n_missing[stage, number] = len(linked.arrivals)
                for recv in linked.arrivals:
                    yield (stage, number), recv

    def receive(self, instance: Instance, recv: Recv, value: Any) -> None:
        """Stores a value that another device has sent an instance."""
        number = instance[1]
        if number not in self.states:
            return  # the loop ended before it
        self.states[number].receive(recv, value)
        is_predicate = recv.slot is not None and recv.slot == self.linked.instruction.predicate
        if is_predicate and not self._decide(number):
            return
        self._n_missing[instance] -= 1
        if not self._n_missing[instance]:
            del self._n_missing[instance]
            self.iterations.arrive(*instance)

    def described(self, number: int) -> str:
        """Returns the iteration that is run after `number` others, for messages."""
        loop = self.linked.instruction
        if loop.trips == 1 and loop.predicate is not None:
            return f"the branch {loop.op!r}"
        index = loop.trips - 1 - number if loop.is_reversed else number
        return f"iteration {index} of the loop {loop.op!r}"

    def work(self, instance: Instance) -> Sequence[LinkedInstruction]:
        """Returns the instructions of an instance, except its arrivals."""
        return self.linked.stages[instance[0]].work

    def end(self, instance: Instance) -> bool:
        """Records that an instance has ended; returns whether its iteration has.

        If it has computed the predicate, and the iteration is not run, the loop ends.
        """
        stage, number = instance
        if number not in self.states:
            return False  # the loop ended before it
        state = self.states[number]
        if stage == self.linked.computed_predicate and not self._decide(number):
            return False
        for i, slot in self.linked.stages[stage].made:
            following = self.states.get(number + 1)
            if following is not None:
                following[self.linked.carried[i]] = state[slot]
            else:
                self._carried[i, number + 1] = state[slot]
        if not self.iterations.end(*instance):
            return False
        slots = (slot for stage in self.linked.stages for slot in stage.results)
        self._computing.append([*filter(_is_pending, (state[slot] for slot in slots))])
        self.states.pop(number).close()
        return True

    def _decide(self, number: int) -> bool:
        """Returns whether an iteration is run, by the predicate; if it is not, ends the loop."""
        predicate = self.linked.instruction.predicate
        assert predicate is not None
        if bool(np.asarray(self.states[number][predicate])):
            return True
        for i, slot in enumerate(self.linked.carried):
            self._carried.setdefault((i, number), self.states[number][slot])
        for later in [one for one in self.states if one >= number]:
            self.states.pop(later).close()
        self._n_missing = {key: n for key, n in self._n_missing.items() if key[1] < number}
        self.iterations.stop(number)
        return False

    def finish(self) -> Iterator[jax.Array]:
        """Fills the final slots; yields what must be computed before its inputs may change."""
        n_ended = self.iterations.n_ended
        for i, carry in enumerate(self.linked.instruction.carries):
            if carry.final is not None:
                value = self._carried[i, n_ended]
                # Without an iteration it is still the value of another slot, or of a variable.
                self._outer[carry.final] = value if n_ended else jnp.copy(value)
        for results in self._computing:
            yield from filter(_is_pending, results)
        for slot in self.linked.last_uses:
            self._outer.end_use(slot)

    def close(self) -> None:
        """Drops the iterations under way."""
        for state in self.states.values():
            state.close()
        self.states.clear()


def _put(value: Any, device: DeviceOrMesh) -> Any:
    """Returns a value in the memory of the device, so that programs need not move it each time."""
    if isinstance(value, bool | int | float | complex):
        return jax.device_put(value, whole_on(device))
    moved = put(value, device)
    may_move = isinstance(moved, np.ndarray) and not is_string_tensor(moved)
    if not may_move or is_switched_off(moved.dtype):
        return moved
    return jax.device_put(moved, whole_on(device))


def _is_pending(value: Any) -> bool:
    """Whether a device still computes a value, which no later program has taken over."""
    return isinstance(value, jax.Array) and not is_computed(value)

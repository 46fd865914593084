"""`run_loop`: runs all parts of a loop over devices in the caller's thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

from jflow.errors import InternalError, OpError
from jflow.plan import Loop, Recv, Send
from jflow.task.execution.interpreter import Driver, interpret
from jflow.task.execution.iterations import Instance
from jflow.task.execution.loop import LoopState
from jflow.task.execution.step_state import StepState


def run_loop(parts: Sequence[LoopState], driver: Driver[Any], check: Callable[[str], None]) -> None:
    """Runs all parts of a loop together, to their end.

    One device after another is given one program, if one is ready. So it is given its programs in
    the order in which it would run them if all took the same time.

    Args:
      parts: the parts of the devices.
      driver: performs instructions without waiting.
      check: called before each iteration with what is done; raises an error to end the loop.

    Raises:
      OpError: as the instructions do, with the iteration.
    """
    exchange = _Exchange()
    try:
        while not all(part.iterations.is_over for part in parts):
            if parts[0].iterations.may_begin:
                check(f"running {parts[0].described(parts[0].iterations.n_begun)}")
            if not sum([_advance(part, driver, exchange) for part in parts]):
                raise InternalError("a loop over devices waits for itself")
        for part in parts:
            for value in part.finish():
                value.block_until_ready()
    finally:
        for part in parts:
            part.close()


def _advance(part: LoopState, driver: Driver[Any], exchange: _Exchange) -> bool:
    """Begins the iterations that may begin, and runs an instance; returns whether it did either."""
    loop, has_begun = part.linked.instruction, False
    while part.iterations.may_begin:
        for value in part.not_computed():
            value.block_until_ready()
        number, arrivals = part.begin()
        has_begun = True
        for stage, received in arrivals:
            edges = [loop.edge(one.edge, number) for one in received]
            exchange.expect(edges, part, (stage, number))
    instance = part.iterations.take()
    if instance is None:
        return has_begun
    state = part.states[instance[1]]
    own_driver = _IterationDriver(driver, loop, instance[1], exchange)
    linked = part.linked.stages[instance[0]]
    try:
        for _ in interpret(zip(repeat(0), (*linked.arrivals, *linked.work)), (state,), own_driver):
            raise InternalError("an instruction of the body of a loop has to wait")
    except OpError as error:
        error.with_context(doing=part.described(instance[1]))
        raise
    part.end(instance)
    return True


class _Exchange:
    """The values that the parts of a loop send each other, by the edges of the step."""

    def __init__(self) -> None:
        self.values: dict[int, Any] = {}
        self._expected: dict[int, tuple[LoopState, Instance]] = {}
        self._n_missing: dict[tuple[LoopState, Instance], int] = {}

    def send(self, edge: int, value: Any) -> None:
        """Stores a value for the part that receives it."""
        self.values[edge] = value
        if edge in self._expected:
            self._has_one_more(self._expected.pop(edge))

    def expect(self, edges: Sequence[int], part: LoopState, instance: Instance) -> None:
        """Tells a part when all of some edges have values."""
        receiver = part, instance
        self._n_missing[receiver] = len(edges)
        for edge in edges:
            if edge in self.values:
                self._has_one_more(receiver)
            else:
                self._expected[edge] = receiver

    def _has_one_more(self, receiver: tuple[LoopState, Instance]) -> None:
        self._n_missing[receiver] -= 1
        if not self._n_missing[receiver]:
            del self._n_missing[receiver]
            part, instance = receiver
            part.iterations.arrive(*instance)


class _IterationDriver:
    """Performs the instructions of an iteration, in which edges have numbers of their own.

    Args:
      driver: performs all but sends and receives.
      loop: the loop.
      number: the number of the iteration.
      exchange: has the values that are sent.
    """

    def __init__(self, driver: Driver[Any], loop: Loop, number: int, exchange: _Exchange) -> None:
        self._loop, self._number, self._exchange = loop, number, exchange
        self.compute, self.finish, self.call = driver.compute, driver.finish, driver.call
        self.perform, self.call_client, self.loop = driver.perform, driver.call_client, driver.loop

    def send(self, state: StepState, send: Send, /) -> None:
        """Stores the value for the plan that receives it."""
        value = None if send.slot is None else state[send.slot]
        self._exchange.send(self._loop.edge(send.edge, self._number), value)

    def receive(self, state: StepState, recv: Recv, /) -> None:
        """Stores the value that another plan has sent."""
        state.receive(recv, self._exchange.values.pop(self._loop.edge(recv.edge, self._number)))

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
        for instance, recv in arrivals:
            exchange.expect(loop.edge(recv.edge, number), part, instance, recv)
    ready = part.iterations.take()
    if ready is None:
        return has_begun
    state = part.states[ready[1]]
    own_driver = _IterationDriver(driver, loop, ready[1], exchange)
    try:
        for _ in interpret(zip(repeat(0), part.work(ready)), (state,), own_driver):
            raise InternalError("an instruction of the body of a loop has to wait")
    except OpError as error:
        error.with_context(doing=part.described(ready[1]))
        raise
    part.end(ready)
    return True


class _Exchange:
    """The values that the parts of a loop send each other, by the edges of the step."""

    def __init__(self) -> None:
        self._values: dict[int, Any] = {}
        self._expected: dict[int, tuple[LoopState, Instance, Recv]] = {}

    def send(self, edge: int, value: Any) -> None:
        """Gives a value to the part that expects it, now or later."""
        if edge in self._expected:
            part, instance, recv = self._expected.pop(edge)
            part.receive(instance, recv, value)
        else:
            self._values[edge] = value

    def expect(self, edge: int, part: LoopState, instance: Instance, recv: Recv) -> None:
        """Gives a part the value of an edge, now or later."""
        if edge in self._values:
            part.receive(instance, recv, self._values.pop(edge))
        else:
            self._expected[edge] = part, instance, recv


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
        self.perform, self.call_client = driver.perform, driver.call_client
        self.loop, self.receive = driver.loop, driver.receive

    def send(self, state: StepState, send: Send, /) -> None:
        """Stores the value for the plan that receives it."""
        value = None if send.slot is None else state[send.slot]
        self._exchange.send(self._loop.edge(send.edge, self._number), value)

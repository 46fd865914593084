"""`run_loop`: runs all parts of loops over devices in the caller's thread."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from jflow.errors import InternalError, OpError
from jflow.plan import Recv, Send
from jflow.state.resources.kernel import Wanted
from jflow.task.execution.interpreter import Driver, Interpret
from jflow.task.execution.iterations import Instance
from jflow.task.execution.linked import LinkedLoop
from jflow.task.execution.loop import LoopState
from jflow.task.execution.step_state import StepState


def run_loop(
    parts: Sequence[LoopState],
    driver: Driver[Any],
    check: Callable[[str], None],
    interpret: Interpret,
) -> Generator[Wanted, None, None]:
    """Runs all parts of a loop together, and of the loops inside of it, to their end.

    It yields what an instance waits for, and all parts wait with it: nothing else in the loop may
    have an effect before.

    One device after another is given one program, if one is ready. So it is given its programs in
    the order in which it would run them if all took the same time.

    Args:
      parts: the parts of the devices.
      driver: performs instructions without waiting.
      check: called before each iteration with what is done; raises an error to end the loop.
      interpret: the interpreter of instances.

    Raises:
      OpError: as the instructions do, with the iteration.
    """
    return _BlockingLoop(driver, check, interpret).run(parts)


class _BlockingLoop:
    """The parts of loops that run together.

    Args:
      driver, check, interpret: as for `run_loop`.
    """

    def __init__(
        self, driver: Driver[Any], check: Callable[[str], None], interpret: Interpret
    ) -> None:
        self._interpret = interpret
        self._check = check
        self._exchange = _Exchange()
        self._driver = _IterationDriver(driver, self._exchange)
        # The parts that run, with what goes on when one of an inner loop has ended.
        self._parts: dict[LoopState, _Waiting | None] = {}

    def run(self, parts: Sequence[LoopState]) -> Generator[Wanted, None, None]:
        """Runs the parts to their end; see `run_loop`."""
        self._parts |= dict.fromkeys(parts)
        try:
            while self._parts:
                if parts[0].iterations.may_begin:
                    self._check(f"running {parts[0].described(parts[0].iterations.n_begun)}")
                has_advanced = False
                for part in [*self._parts]:
                    has_advanced |= yield from self._advance(part)
                if not has_advanced:
                    raise InternalError("a loop over devices waits for itself")
        finally:
            for part in (*self._parts, *parts):
                part.close()

    def _advance(self, part: LoopState) -> Generator[Wanted, None, bool]:
        """Lets a part begin iterations and run an instance, or end; returns whether it did."""
        iterations, has_begun = part.iterations, False
        while iterations.may_begin:
            for value in part.not_computed():
                value.block_until_ready()
            number, arrivals = part.begin()
            has_begun = True
            for receiver, recv in arrivals:
                self._exchange.expect(part.edge(number, recv.edge), part, receiver, recv)
        if iterations.is_over:
            yield from self._end(part)
            return True
        instance = iterations.take()
        while instance is not None and not part.work(instance):
            part.end(instance)
            instance, has_begun = iterations.take(), True
        if instance is None:
            return has_begun
        state = part.states[instance[1]]
        running = self._interpret(zip(repeat(0), part.work(instance)), (state,), self._driver)
        yield from self._go_on(_Waiting(part, instance, running))
        return True

    def _go_on(self, waiting: _Waiting) -> Generator[Wanted, None, None]:
        """Runs an instance to its end, or to the next inner loop."""
        part, instance, running = waiting
        try:
            inner = yield from until_inner_loop(running)
        except OpError as error:
            error.with_context(doing=part.described(instance[1]))
            raise
        if isinstance(inner, LoopState):
            self._parts[inner] = waiting
        elif inner is None:
            part.end(instance)
        else:
            raise InternalError("an instruction of the body of a loop has to wait")

    def _end(self, part: LoopState) -> Generator[Wanted, None, None]:
        for value in part.finish():
            value.block_until_ready()
        waiting = self._parts.pop(part)
        part.close()
        if waiting is not None:
            yield from self._go_on(waiting)


def until_inner_loop(running: Generator[Any, None, None]) -> Generator[Wanted, None, Any]:
    """Runs an instance, and yields what it waits for, until it comes to something else.

    Returns:
      What it waits for beyond attempts on resources; None if it has ended.
    """
    try:
        pending = next(running, None)
        while isinstance(pending, tuple):
            try:
                yield pending
            except BaseException as error:  # what the waiting operation is to end with
                pending = running.throw(error)
            else:
                pending = next(running, None)
    except StopIteration:
        return None
    return pending


class _Waiting(NamedTuple):
    """An instance of a loop that waits for a loop inside of it."""

    part: LoopState
    instance: Instance
    running: Generator[Any, None, None]


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
    """Performs the instructions of an iteration.

    Args:
      driver: performs all but sends, receives and loops.
      exchange: has the values that are sent.
    """

    def __init__(self, driver: Driver[Any], exchange: _Exchange) -> None:
        self._exchange = exchange
        self.compute, self.finish, self.call = driver.compute, driver.finish, driver.call
        self.perform, self.call_client = driver.perform, driver.call_client
        self.receive = driver.receive

    def loop(self, state: StepState, loop: LinkedLoop, /) -> Generator[LoopState, None, None]:
        """Begins a loop inside of the other one, which has to be waited for."""
        yield LoopState(loop, state)

    def send(self, state: StepState, send: Send, /) -> None:
        """Stores the value for the plan that receives it."""
        # The iteration may end before another device takes it.
        value = None if send.slot is None else state.array(send.slot)
        self._exchange.send(state.edge_of(send.edge), value)

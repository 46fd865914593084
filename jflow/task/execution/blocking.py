"""The blocking driver: runs interpreters of plans in the caller's thread.

Several interpreters may have to wait at the same time. Each is a *fiber*: a generator that yields
the attempts on resources that it waits for. The thread runs every fiber until it has to wait, and
then sleeps until an attempt completes that one of them waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Hashable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from queue import Empty, SimpleQueue
from types import MappingProxyType
from typing import Any, TypeVar

from jflow.base.deadline import Deadline
from jflow.base.deadline.notices import WaitNotice
from jflow.errors import CancelledError, OpError
from jflow.plan import Recv, Send
from jflow.plan.trace.measured import NO_NAMES, StepNames
from jflow.state.resources.kernel import Wanted
from jflow.task.execution.blocking_loop import run_loop
from jflow.task.execution.callback import ClientFunction, LinkedCallback
from jflow.task.execution.interpreter import Interpret, interpret
from jflow.task.execution.linked import LinkedLoop, LinkedPlan
from jflow.task.execution.loop import LoopState
from jflow.task.execution.step_state import StepState
from jflow.task.execution.waiting import waiting_op

LoopParts = Mapping[int, Sequence[tuple[int, LinkedLoop]]]
"""The parts of loops, with the positions of their plans, by the numbers of the loops."""

NO_LOOPS: LoopParts = MappingProxyType({})

Name = TypeVar("Name", bound=Hashable)
Fiber = Generator[Wanted, None, None]


class Woken(SimpleQueue[Any]):
    """Names of fibers that can continue; None if the step is cancelled.

    Attributes:
      is_cancelled: whether it is.
    """

    is_cancelled = False

    def cancel(self) -> None:
        """Cancels the step."""
        self.is_cancelled = True
        self.put(None)


def loops_of(plans: Sequence[LinkedPlan]) -> LoopParts:
    """Returns the parts of the loops of a step."""
    parts: dict[int, list[tuple[int, LinkedLoop]]] = {}
    for number, linked in enumerate(plans):
        for one in chain.from_iterable(linked.stages):
            if isinstance(one, LinkedLoop):
                parts.setdefault(one.instruction.number, []).append((number, one))
    return parts


class BlockingDriver:
    """Performs every instruction immediately, in the thread of the interpreter.

    The interpreters wait for attempts on resources only, because reading a value blocks until the
    device has computed it, and plans run in an order in which every value is sent before it is
    received.

    Args:
      functions: the functions of the client, by number.
      loops: the parts of each loop, with the positions of their plans.
      states: the states of the plans.
      check: raises an error if the step has to end, between the iterations of a loop.
      interpret: the interpreter of the iterations of loops, which may trace.
    """

    def __init__(
        self,
        functions: Sequence[ClientFunction],
        loops: LoopParts = NO_LOOPS,
        states: Sequence[StepState] = (),
        check: Callable[[str], None] = lambda _: None,
        interpret: Interpret = interpret,
    ) -> None:
        self._interpret = interpret
        self._check = check
        self._functions = functions
        self._loops = loops
        self._states = states
        self._sent: dict[int, Any] = {}

    # Not wrapped in methods, because every instruction of every step would pay for the call.
    compute = staticmethod(StepState.compute)
    finish = staticmethod(StepState.finish)
    call = staticmethod(StepState.call)
    perform = staticmethod(StepState.perform)

    def call_client(self, state: StepState, callback: LinkedCallback, /) -> None:
        """Calls a function of the client in this thread."""
        operands = state.operands(callback)
        if operands is not None:
            with callback.naming_errors():
                results = self._functions[callback.number](operands)
            state.answer(callback, results)

    def loop(self, _: StepState, loop: LinkedLoop, /) -> Generator[Wanted, None, None]:
        """Runs all parts of a loop."""
        number = loop.instruction.number
        parts = [LoopState(one, self._states[i]) for i, one in self._loops[number]]
        return run_loop(parts, self, self._check, self._interpret)

    def send(self, state: StepState, send: Send, /) -> None:
        """Stores the value for the plan that receives it."""
        self._sent[send.edge] = None if send.slot is None else state[send.slot]

    def receive(self, state: StepState, recv: Recv, /) -> None:
        """Stores the value that another plan has sent."""
        state.receive(recv, self._sent.pop(recv.edge))


def run_fibers(
    fibers: Mapping[Name, Fiber],
    after: Mapping[Name, Collection[Name]],
    deadline: Deadline,
    woken: Woken,
    names: StepNames = NO_NAMES,
) -> None:
    """Runs fibers to their end.

    Args:
      fibers: the generators, by name.
      after: for each fiber, the fibers that have to end before it begins.
      deadline: limits the time of waiting.
      woken: receives the names of fibers that can continue; None cancels all waiting.
      names: the names of operations in notices of long waits.

    Raises:
      DeadlineExceededError: if the deadline passes; all waiting attempts are cancelled. If by then
        all of them have completed and none can be rolled back, the step continues instead, because
        a caller that sees an error might repeat it.
      OpError: the first one that a fiber raises; the same applies.
    """
    missing = {name: set(after[name]) for name in fibers}
    ready = [name for name, needed in missing.items() if not needed]
    parked: dict[Name, Wanted] = {}
    try:
        while ready or parked:
            try:
                if ready:
                    name = ready.pop()
                else:
                    name = _next_woken(woken, deadline, lambda: _waits_text(fibers, parked, names))
            except OpError as error:
                reasons = _reasons(parked)
                if _cancel_attempts(parked):
                    failure = type(error)("; it ".join([error.message, *reasons]))
                    _throw(failure, next(fibers[name] for name in parked))
                    raise failure from None
                continue  # all attempts completed at the last moment, and wake their fibers
            parked.pop(name, None)
            if _run_until_wait(name, fibers[name], woken, parked):
                continue
            for other, needed in missing.items():
                if name in needed:
                    needed.discard(name)
                    if not needed:
                        ready.append(other)
    finally:
        if parked:
            _cancel_attempts(parked)
        for fiber in fibers.values():
            fiber.close()


def _run_until_wait(name: Name, fiber: Fiber, woken: Woken, parked: dict[Name, Wanted]) -> bool:
    """Runs a fiber until it ends or has to wait; returns whether it waits."""
    for cell, attempt in fiber:
        parked[name] = (cell, attempt)
        if not cell.submit(attempt, lambda _: woken.put(name)):
            return True
        del parked[name]
    return False


def _throw(error: OpError, fiber: Fiber) -> None:
    """Ends a fiber with an error where it waits; the waiting operation adds its name to it."""
    with suppress(OpError, StopIteration):
        fiber.throw(error)


def _cancel_attempts(parked: Mapping[Name, Wanted]) -> bool:
    """Cancels the attempts for which fibers wait.

    Returns:
      Whether any of them had not completed, or can be rolled back.
    """
    for cell, attempt in parked.values():
        cell.cancel(attempt, CancelledError("Step was cancelled"))
    return any(attempt.error or attempt.can_roll_back for _, attempt in parked.values())


def _reasons(parked: Mapping[Name, Wanted]) -> list[str]:
    """Describes what the fibers wait for, as far as that is known."""
    return [reason for cell, attempt in parked.values() if (reason := cell.reason(attempt))]


def _waits_text(
    fibers: Mapping[Name, Fiber], parked: Mapping[Name, Wanted], names: StepNames
) -> str:
    """Describes what the fibers wait for, with the waiting operations, for a notice."""
    return "; ".join(
        f"{names.op_text(op) if (op := waiting_op(fibers[name])) else 'a step'} "
        f"{reason.replace('waited', 'waits', 1)}"
        for name, (cell, attempt) in parked.items()
        if (reason := cell.reason(attempt))
    )


def _next_woken(woken: Woken, deadline: Deadline, what: Callable[[], str]) -> Any:
    """Waits for the next fiber that can continue and returns its name."""
    try:
        name = WaitNotice(what).get_from(woken, deadline)
    except Empty:
        raise deadline.error("running the step") from None
    if name is None:
        woken.put(None)  # for the next wait of this step
        raise CancelledError("Step was cancelled")
    return name

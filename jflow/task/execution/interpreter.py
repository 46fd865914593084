"""The interpreter of plans: performs instructions in order; a driver decides how to wait.

`interpret` is a generator that yields what it has to wait for; a *driver* runs it and performs the
single instructions. The blocking driver performs all of them in the caller's thread and sleeps only
for attempts on resources (`jflow.task.execution.blocking`). The asyncio driver never blocks its
event loop: it awaits long programs, slow calls and transfers (`jflow.task.worker.plan_run`). The
semantics of an instruction is the same for both, see `jflow.task.execution.step_state`.

Feeds and fetches are the boundary of a step: the caller of a driver fills and reads their slots.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from jflow.plan import Recv, Send
from jflow.state.resources.kernel import Wanted
from jflow.task.execution.callback import LinkedCallback
from jflow.task.execution.linked import (
    LinkedCall,
    LinkedInstruction,
    LinkedKernel,
    LinkedLoop,
    LinkedRun,
)
from jflow.task.execution.step_state import StepState
from jflow.task.execution.variables import VariableAccess

W_co = TypeVar("W_co", covariant=True)
"""What a driver can wait for, in addition to attempts on resources."""


Interpret = Callable[..., Generator[Any, None, None]]
"""An interpreter of the instances of a loop, which may trace."""


class Driver(Protocol[W_co]):
    """Performs the instructions of plans for the interpreter.

    A method either does its work and returns None, or returns what to wait for until it is done.
    """

    def compute(self, state: StepState, run: LinkedRun, /) -> W_co | None:
        """Runs a program that uses no variables; see `StepState.compute`."""

    def finish(self, state: StepState, access: VariableAccess, /) -> W_co | None:
        """Runs a program on the variables that it was granted; see `StepState.finish`."""

    def call(self, state: StepState, call: LinkedCall, /) -> W_co | None:
        """Calls a host function; see `StepState.call`."""

    def call_client(self, state: StepState, callback: LinkedCallback, /) -> W_co | None:
        """Calls a function of the client between `StepState.operands` and `StepState.answer`."""

    def perform(
        self, state: StepState, kernel: LinkedKernel, /
    ) -> Generator[Wanted | W_co, None, None]:
        """Runs a kernel, and yields what it waits for; see `StepState.perform`."""

    def loop(self, state: StepState, loop: LinkedLoop, /) -> Generator[Wanted | W_co, None, None]:
        """Runs a loop over devices to its end, and yields what it waits for."""

    def send(self, state: StepState, send: Send, /) -> None:
        """Sends a value or a signal, without waiting for its arrival."""

    def receive(self, state: StepState, recv: Recv, /) -> W_co | None:
        """Receives a value or signal from another plan; see `StepState.receive`."""


def interpret(
    work: Iterable[tuple[int, LinkedInstruction]], states: Sequence[StepState], driver: Driver[W_co]
) -> Generator[Wanted | W_co, None, None]:
    """Performs instructions in order; a generator that yields what it waits for.

    It must be resumed when the wait is over, or closed if the wait fails. Closing it ends accesses
    to variables, and returns the values of attempts that have completed in the meantime.

    Args:
      work: instructions, each with the index of its plan.
      states: the states of the plans in this step.
      driver: performs the instructions.

    Raises:
      OpError: as the instructions do.
    """
    for number, instruction in work:
        state = states[number]
        pending: W_co | None = None
        match instruction:
            case LinkedRun():
                if instruction.uses_variables:
                    access = state.begin_access(instruction) or (yield from state.wait(instruction))
                    pending = driver.finish(state, access)
                else:
                    pending = driver.compute(state, instruction)
            case LinkedKernel():
                yield from driver.perform(state, instruction)
            case LinkedCall():
                pending = driver.call(state, instruction)
            case LinkedCallback():
                pending = driver.call_client(state, instruction)
            case LinkedLoop():
                yield from driver.loop(state, instruction)
            case Send():
                driver.send(state, instruction)
            case Recv():
                pending = driver.receive(state, instruction)
        if pending is not None:
            yield pending

"""Traced steps: the interpreter and the step state, with notes of what takes how long.

`traced` interprets one instruction at a time, so that the interpreter itself and its drivers know
nothing of traces and a step that is not traced pays nothing. Programs are timed where they are
started (`TracedState`), which is the same place for both drivers, until their results are computed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import TypeVar

import jax

from jflow.errors import InternalError
from jflow.execution.interpreter import Driver, interpret
from jflow.execution.link import LinkedInstruction, LinkedPlan, LinkedRun
from jflow.execution.step_state import StepState, Watch
from jflow.execution.variables import QUEUED_S
from jflow.plan import Recv, Send
from jflow.resources import Containers
from jflow.resources.kernel import Wanted
from jflow.trace.record import PlanRecorder, Recorder
from jflow.trace.spans import CALL, PROGRAM, WAIT

W = TypeVar("W")


class TracedState(StepState):
    """The state of a plan in a traced step.

    Args:
      linked, containers, queued_s, watch: as for `StepState`.
      recorder: notes what the task does in the step.
    """

    __slots__ = ("recorder",)

    def __init__(
        self,
        linked: LinkedPlan,
        containers: Containers,
        recorder: Recorder,
        queued_s: float = QUEUED_S,
        watch: Watch | None = None,
    ) -> None:
        super().__init__(linked, containers, queued_s, watch)
        plan = linked.plan
        self.recorder: PlanRecorder = recorder.of_plan(str(plan.device), plan.instructions)

    def receive(self, recv: Recv, value: object) -> None:
        """See `StepState.receive`; waits until the value is on the device."""
        start = self.recorder.now()
        super().receive(recv, value)
        n_bytes = 0
        if recv.slot is not None:
            held = jax.block_until_ready(self[recv.slot])
            n_bytes = int(held.nbytes)
        self.recorder.received(recv.edge, n_bytes, start)

    def _compute(
        self, linked: LinkedRun, old: list[jax.Array]
    ) -> tuple[list[jax.Array], jax.Array | None]:
        if linked.executable is None:
            return super()._compute(linked, old)
        start = self.recorder.now()
        new, probe = super()._compute(linked, old)
        dispatched = self.recorder.now()
        if probe is not None:
            probe.block_until_ready()
        self.recorder.span(PROGRAM, linked.instruction, start, dispatched)
        return new, probe


def traced(
    work: Iterable[tuple[int, LinkedInstruction]], states: Sequence[StepState], driver: Driver[W]
) -> Generator[Wanted | W, None, None]:
    """As `interpret`, with states that note what happens: all of them are `TracedState`s."""
    for number, linked in work:
        state = states[number]
        if not isinstance(state, TracedState):
            raise InternalError("a traced step needs states that note what happens")
        recorder = state.recorder
        instruction = getattr(linked, "instruction", linked)
        start = recorder.now()
        if isinstance(linked, Send):
            recorder.sent(linked.edge)
        running = interpret(((number, linked),), states, driver)
        waited = yield from _waiting(running, recorder, instruction)
        if isinstance(linked, Recv):
            if waited is not None:
                recorder.span(WAIT, instruction, start)
        elif not isinstance(linked, Send) and not _is_program(linked):
            recorder.span(CALL, instruction, start if waited is None else waited)


def _is_program(linked: LinkedInstruction) -> bool:
    return isinstance(linked, LinkedRun) and linked.executable is not None


def _waiting(
    running: Generator[Wanted | W, None, None], recorder: PlanRecorder, instruction: object
) -> Generator[Wanted | W, None, float | None]:
    """Runs one instruction, and notes its waits for resources and variables.

    Returns:
      When its last wait of any kind was over; None if it had none.
    """
    waited = None
    try:
        pending = next(running)
        while True:
            start = recorder.now()
            try:
                yield pending
            except BaseException as error:
                pending = running.throw(error)
            else:
                # The driver's own waits are for programs and calls that run.
                if isinstance(pending, tuple):
                    recorder.span(WAIT, instruction, start)
                    waited = recorder.now()
                elif isinstance(instruction, Recv):
                    waited = recorder.now()
                pending = next(running)
    except StopIteration:
        return waited

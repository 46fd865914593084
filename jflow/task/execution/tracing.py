"""Traced steps: wraps the interpreter and the step state to record spans and waits.

`traced` watches the interpreter from outside, by what it takes and what it yields, so that the
interpreter itself and its drivers know nothing of traces and a step that is not traced pays
nothing. Programs are timed where they are started (`TracedState`), which is the same place for both
drivers, until their results are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, TypeVar

import jax

from jflow.errors import InternalError
from jflow.plan import Recv, Send
from jflow.plan.trace.record import PlanRecorder, Recorder
from jflow.plan.trace.spans import CALL, PROGRAM, WAIT
from jflow.state.resources import Containers
from jflow.state.resources.kernel import Wanted
from jflow.task.execution.interpreter import Driver, interpret
from jflow.task.execution.linked import LinkedInstruction, LinkedLoop, LinkedPlan, LinkedRun
from jflow.task.execution.step_state import EdgeOf, StepState
from jflow.task.execution.variables import VariableAccess

W = TypeVar("W")


class TracedState(StepState):
    """The state of a plan in a traced step; see `traced_state`.

    Attributes:
      recorder: records what the plan does.
    """

    __slots__ = ("recorder",)

    recorder: PlanRecorder

    def for_iteration(self, body: LinkedPlan, edge_of: EdgeOf) -> StepState:
        """See `StepState.for_iteration`."""
        state = TracedState(body, self._containers, self._queued_s)
        state.edge_of, state.recorder = edge_of, self.recorder
        return state

    def receive(self, recv: Recv, value: object) -> None:
        """See `StepState.receive`; waits until the value is on the device."""
        start = self.recorder.now()
        super().receive(recv, value)
        n_bytes = 0
        if recv.slot is not None:
            held = self[recv.slot]
            if isinstance(held, jax.Array):
                held.block_until_ready()
            n_bytes = int(held.nbytes)
        self.recorder.received(self.edge_of(recv.edge), n_bytes, start)

    def _run(self, linked: LinkedRun, access: VariableAccess | None) -> list[jax.Array]:
        for number, n_updates, is_written in () if access is None else access.touched():
            if n_updates >= 0:
                self.recorder.accessed(linked.instruction, number, n_updates, is_written)
        if linked.executable is None:
            return []
        start = self.recorder.now()
        results = super()._run(linked, access)
        dispatched = self.recorder.now()
        if results:
            results[-1].block_until_ready()
        self.recorder.span(PROGRAM, linked.instruction, start, dispatched)
        return results


def traced_state(
    recorder: Recorder, linked: LinkedPlan, containers: Containers, **options: Any
) -> TracedState:
    """Returns the state of a plan in a traced step; the options are those of `StepState`.

    What the plan and the bodies of its loops do is recorded as of one plan.
    """
    state = TracedState(linked, containers, **options)
    state.recorder = recorder.of_plan(str(linked.plan.device), linked.plan.all_instructions)
    return state


def traced(
    work: Iterable[tuple[int, LinkedInstruction]], states: Sequence[StepState], driver: Driver[W]
) -> Generator[Wanted | W, None, None]:
    """Like `interpret`, but records a trace; the states must be `TracedState`s."""
    watch = _Watch()
    running = interpret(watch.instructions(work, states), states, driver)
    try:
        pending = next(running)
        while True:
            start = watch.now()
            try:
                yield pending
            except BaseException as error:
                pending = running.throw(error)
            else:
                watch.has_waited(pending, start)
                pending = next(running)
    except StopIteration:
        return


class _Watch:
    """Records when an interpreter takes each instruction, and for what it waits in between.

    Attributes:
      now: the clock.
    """

    def __init__(self) -> None:
        self.now: Callable[[], float] = float
        self._recorder: PlanRecorder | None = None
        self._instruction: object = None
        self._waited: float | None = None

    def instructions(
        self, work: Iterable[tuple[int, LinkedInstruction]], states: Sequence[StepState]
    ) -> Generator[tuple[int, LinkedInstruction], None, None]:
        """Yields the instructions, and records each as done when the next one is taken.

        Nothing is recorded of an instruction that fails. Programs are recorded where they run; of a
        loop, its iterations are.
        """
        for number, linked in work:
            state = self._begin(states[number], linked)
            recorder, start = state.recorder, self.now()
            if isinstance(linked, Send):
                recorder.sent(state.edge_of(linked.edge))
            yield number, linked
            if isinstance(linked, Recv):
                if self._waited is not None:
                    recorder.span(WAIT, linked, start)
            elif not isinstance(linked, Send | LinkedLoop) and not _is_program(linked):
                waited = self._waited
                recorder.span(CALL, linked.instruction, start if waited is None else waited)

    def has_waited(self, pending: object, start: float) -> None:
        """Records a wait that began at `start` and is over."""
        # The driver's own waits, which are no tuples, are for programs and calls that run.
        if isinstance(pending, tuple) and self._recorder is not None:
            self._recorder.span(WAIT, self._instruction, start)
            self._waited = self.now()
        elif isinstance(self._instruction, Recv):
            self._waited = self.now()

    def _begin(self, state: StepState, linked: LinkedInstruction) -> TracedState:
        if not isinstance(state, TracedState):
            raise InternalError("a traced step needs states that note what happens")
        self._recorder, self._waited = state.recorder, None
        self._instruction = linked if isinstance(linked, Send | Recv) else linked.instruction
        self.now = state.recorder.now
        return state


def _is_program(linked: LinkedInstruction) -> bool:
    return isinstance(linked, LinkedRun) and linked.executable is not None

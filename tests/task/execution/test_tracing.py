"""What a traced plan notes, by a clock that goes on when the test says so."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import jax
import numpy as np
import pytest

from jflow.base.cluster import Device, Task
from jflow.errors import AbortedError, InternalError
from jflow.plan import Call, Plan, Program, Recv, Run, Send
from jflow.plan.trace.record import Recorder
from jflow.plan.trace.spans import KINDS
from jflow.state.resources import Containers
from jflow.task.execution import LinkedPlan, link
from jflow.task.execution.linked import LinkedInstruction, LinkedKernel
from jflow.task.execution.step_state import StepState
from jflow.task.execution.tracing import traced, traced_state
from jflow.testing import VirtualClock

TASK = Task("ps", 0)
CPU = Device(TASK, "CPU", 0)
HERE = jax.local_devices(backend="cpu")[0]
WAIT: Any = ("a cell", "an attempt")


class Traced:
    """A plan of some instructions, traced by a virtual clock, and the driver of its interpreter."""

    def __init__(self, *instructions: Any, program: Any = None) -> None:
        self.clock = VirtualClock(0.0)
        self.recorder = Recorder(str(TASK), self.clock.now)
        plan = Plan(CPU, 4, (), (tuple(instructions),))
        self.linked = self._link(plan, program)
        self.state = traced_state(self.recorder, self.linked, Containers(TASK))
        self.seen: list[BaseException] = []

    def _link(self, plan: Plan, program: Any) -> LinkedPlan:
        if not any(isinstance(one, Call) for one in plan.instructions):
            return link(plan, HERE, lambda _: program, {}.__getitem__)
        kernels: Any = (LinkedKernel(one, None, (), {}, ()) for one in plan.instructions)  # type: ignore[arg-type]
        return LinkedPlan(plan, HERE, (), (), (tuple(kernels),), (None,) * 4)

    def run(self) -> Generator[Any, None, None]:
        work: list[tuple[int, LinkedInstruction]] = [(0, one) for one in self.linked.stages[0]]
        return traced(work, [self.state], self)  # type: ignore[arg-type]

    def spans(self) -> list[tuple[str, float, float]]:
        rows = self.recorder.record().rows("spans").tolist()
        return [(KINDS[int(kind)], start, end) for _, _, kind, start, _, end in rows]

    def perform(self, *_: Any) -> Generator[Any, None, None]:
        self.clock.advance(1.0)
        try:
            yield WAIT
        except AbortedError as error:
            self.seen.append(error)
            raise
        self.clock.advance(1.0)

    def compute(self, state: StepState, run: Any) -> None:
        state.compute(run)

    def receive(self, state: StepState, recv: Recv) -> Any:
        self.clock.advance(1.0)
        return None if recv.edge else "a value that has not come yet"

    def send(self, *_: Any) -> None:
        self.clock.advance(1.0)


class Late:
    """The result of a program, which is there three seconds after its dispatch."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock

    def block_until_ready(self) -> None:
        self._clock.advance(3.0)


def test_a_program_lasts_until_its_results_are_computed() -> None:
    plan = Traced(Run(Program("p"), (), (), (), (0,)), program=lambda: [late])
    late = Late(plan.clock)
    assert not [*plan.run()]
    assert plan.spans() == [("program", 0.0, 3.0)]
    (row,) = plan.recorder.record().rows("spans").tolist()
    assert row[4] == 0.0, "the end of the dispatch"


def test_a_call_that_waits_is_a_wait_and_a_call_after_it() -> None:
    plan = Traced(Call("queue.dequeue", op="take"))
    running = plan.run()
    assert next(running) == WAIT
    plan.clock.advance(10.0)
    assert not [*running]
    assert plan.spans() == [("wait", 1.0, 11.0), ("call", 11.0, 12.0)]


def test_an_error_of_a_wait_reaches_what_waits_and_leaves_no_span() -> None:
    plan = Traced(Call("queue.dequeue", op="take"), Call("queue.dequeue", op="next"))
    running = plan.run()
    next(running)
    error = AbortedError("the queue is closed")
    with pytest.raises(AbortedError) as caught:
        running.throw(error)
    assert caught.value is error
    assert plan.seen == [error]
    assert not plan.spans()


def test_a_value_that_has_to_come_first_is_waited_for_and_one_that_is_there_is_not() -> None:
    plan = Traced(Recv(0, CPU, 0), Recv(1, CPU, 1))
    running = plan.run()
    assert next(running) == "a value that has not come yet"
    plan.clock.advance(5.0)
    assert not [*running]
    assert plan.spans() == [("wait", 0.0, 6.0)]


def test_a_value_is_ready_to_leave_before_the_driver_sends_it() -> None:
    plan = Traced(Send(4, CPU, 0))
    plan.clock.advance(2.0)
    assert not [*plan.run()]
    assert plan.recorder.record().rows("sent").tolist() == [[4, 2.0]]


def test_a_received_value_has_its_bytes_and_the_times_of_arrival_and_copy() -> None:
    plan = Traced(Recv(0, CPU, 0))
    plan.clock.advance(1.0)
    plan.recorder.arrived(0)
    plan.clock.advance(1.0)
    plan.state.receive(Recv(0, CPU, 0), np.zeros(3, np.float32))
    plan.state.receive(Recv(1, CPU, None), None)
    assert plan.recorder.record().rows("received").tolist() == [
        [0, 12, 1.0, 2.0, 2.0],
        [1, 0, 0.0, 2.0, 2.0],
    ]


def test_a_state_that_notes_nothing_is_refused() -> None:
    plan = Traced(Send(4, CPU, 0))
    state = StepState(plan.linked, Containers(TASK))
    with pytest.raises(InternalError, match="states that note"):
        next(traced([(0, Send(4, CPU, 0))], [state], plan))  # type: ignore[arg-type]

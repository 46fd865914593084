"""What a worker shares between the plans of a step."""

from __future__ import annotations

from typing import Any

from jflow.base.cluster import Task
from jflow.plan.trace.record import Recorder
from jflow.state.resources import Containers
from jflow.task.worker.context import WorkerContext
from jflow.task.worker.rendezvous import Rendezvous
from jflow.testing import VirtualClock


def test_the_arrival_of_a_value_is_noted_for_its_own_step_if_that_is_traced() -> None:
    task, clock, unused = Task("ps", 0), VirtualClock(0.0), Any
    context = WorkerContext(task, Containers(task), Rendezvous(), unused, unused, unused)  # type: ignore[arg-type]
    context.rendezvous.open(1)
    context.rendezvous.open(2)
    recorder = context.recorders[1] = Recorder(str(task), clock.now)
    clock.advance(5.0)
    context.deliver(2, 7, None)
    context.deliver(1, 8, None)
    clock.advance(5.0)
    assert recorder.arrival(7) == 0.0, "the start of the step, for what was not seen to arrive"
    assert recorder.arrival(8) == 5.0

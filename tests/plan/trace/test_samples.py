"""Steps that a master has traced for an observer: their names, and their times by its clock."""

from __future__ import annotations

import numpy as np
import pytest

from jflow.base.cluster import Device
from jflow.plan import (
    Call,
    Carry,
    Feed,
    Fetch,
    Loop,
    Plan,
    Program,
    Recv,
    Run,
    Send,
    VariableKey,
    VariableSpec,
)
from jflow.plan.trace.record import TaskRecord
from jflow.plan.trace.samples import StepSamples, combined, sampled

PS, WORKER = Device.parse("/job:ps/task:0/cpu:0"), Device.parse("/job:worker/task:0/cpu:0")
W = VariableSpec(VariableKey("", "w"), "float32", ())
PLANS = (
    Plan(
        PS,
        2,
        (W,),
        (
            (Run(None, before=((0, 0),), op="read"), Send(4, WORKER, 0)),
            (Recv(5, WORKER, 1), Run(Program("p"), (0,), (1,), (0,), op="update")),
        ),
    ),
    Plan(
        WORKER,
        3,
        (),
        (
            (Feed(0, 0), Recv(4, PS, 1)),
            (Run(Program("q"), (), (0, 1), (), (2,), op="dot"), Send(5, PS, 2), Send(6, PS, None)),
            (Call("host", (2,), (), op=""), Fetch(2, 0)),
        ),
    ),
)


def record(task: str, device: Device, begun: float, **rows: list[list[float]]) -> TaskRecord:
    packed = {name: np.array(rows.get(name, []), "<f8").tobytes() for name in ("sent", "received")}
    spans = np.array(rows["spans"], "<f8").tobytes()
    return TaskRecord(task, (str(device),), begun, begun + 5.0, 0.0, 0, spans, **packed)


STEP = sampled(
    PLANS,
    [
        record(
            "/job:ps/task:0",
            PS,
            10.0,
            spans=[[0, 0, 2, 10.0, 10.1, 10.1], [0, 3, 1, 14.0, 14.1, 15.0]],
            sent=[[4, 10.1]],
            received=[[5, 8, 13.0, 13.0, 13.1]],
        ),
        record(
            "/job:worker/task:0",
            WORKER,
            10.5,
            spans=[[0, 2, 1, 11.0, 11.1, 12.0], [0, 5, 2, 12.0, 12.0, 12.5]],
            sent=[[5, 12.0]],
            received=[[4, 4, 10.5, 10.5, 10.6]],
        ),
    ],
)


def test_what_is_traced_is_called_by_the_operations_of_the_plans() -> None:
    trace = combined([STEP])
    names = [(span.name, span.kind, span.device) for span in trace.spans]
    assert names == [
        ("read", "call", str(PS)),
        ("update", "program", str(PS)),
        ("dot", "program", str(WORKER)),
        ("host", "call", str(WORKER)),
    ]
    edges = [(one.name, one.source, one.target, one.n_bytes) for one in trace.transfers]
    assert edges == [("w", str(PS), str(WORKER), 4), ("dot", str(WORKER), str(PS), 8)]


def test_several_steps_are_on_one_axis_from_the_first_on() -> None:
    later = StepSamples(0.0, 0.0, "", (STEP,))
    (other,) = later.shifted(7.0, 7.0, "")
    trace = combined([STEP, other])
    starts = [span.start for span in trace.spans if span.name == "dot"]
    assert starts == pytest.approx([1.0, 8.0])


@pytest.mark.parametrize(("clock", "shift"), [("mine", 0.0), ("other", 97.5)])
def test_times_are_by_the_clock_of_the_observer(clock: str, shift: float) -> None:
    # It comes 1 s after it was sent and 4 s before its answer, if the clocks are those that differ.
    sent, answered = (100.0, 105.0) if clock == "other" else (1.0, 9.0)
    samples = StepSamples.from_bytes(StepSamples(3.0, 7.0, clock, (STEP,)).to_bytes())
    (step,) = samples.shifted(sent, answered, "mine")
    assert step.begun == pytest.approx(10.0 + shift)
    assert step.plans == STEP.plans


def test_the_body_of_a_loop_has_the_names_of_its_plans_variables() -> None:
    body = Plan(
        PS,
        3,
        (),
        (
            (Feed(0, 0), Run(None, before=((0, 1),), op="read"), Send(4, WORKER, 1)),
            (Run(Program("p"), (), (0,), (), (2,), op="double"), Fetch(2, 0)),
        ),
        after=((), (0,)),
    )
    loop = Loop(0, body, 3, 2, 5, 4, carries=(Carry(0, 0, 0, 1),), op="while")
    plan = Plan(PS, 2, (W,), ((Feed(0, 0),), (loop,), (Fetch(1, 0),)))
    step = sampled((plan,), ())
    assert [one.name for one in step.plans[0].instructions if one.kind == "send"] == ["w"]

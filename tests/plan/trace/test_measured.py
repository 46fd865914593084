"""Traces from what tasks noted, and their statistics."""

from __future__ import annotations

import numpy as np
import pytest

import jflow as tf
from jflow.plan.trace.measured import EdgeNames, Label, StepNames, measured
from jflow.plan.trace.record import TaskRecord
from jflow.plan.trace.step_stats import StepStats
from jflow.timeline import Timeline
from tests.plan.trace.chrome import checked_events, slices_of

PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"
AT_PS, AT_WORKER = f"{PS}/device:CPU:0", f"{WORKER}/device:CPU:0"
NAMES = StepNames(
    {
        AT_PS: [Label("read", (), "identity"), Label("w:0")],
        AT_WORKER: [Label("w:0"), Label("dot", ("dot", "sum"), "c0ffee")],
    },
    {0: EdgeNames("w:0", AT_PS, AT_WORKER), 1: EdgeNames("dot:0", AT_WORKER, AT_WORKER)},
)


def rows(*given: list[float]) -> bytes:
    return np.array(given, "<f8").tobytes()


def record(task: str, device: str, **given: bytes) -> TaskRecord:
    tables = {"spans": b"", "sent": b"", "received": b""} | given
    return TaskRecord(task, (device,), 100.0, 109.0, 0.25, 0, **tables)


SENDER = record(
    PS, AT_PS, spans=rows([0, 0, 2, 100.5, 101.0, 101.0]), sent=rows([0, 102.0], [5, 102.0])
)
RECEIVER = record(
    WORKER,
    AT_WORKER,
    spans=rows([0, 0, 3, 101.0, 103.5, 103.5], [0, 1, 1, 104.0, 104.5, 106.0]),
    sent=rows([1, 106.0]),
    received=rows([0, 64, 103.0, 107.0, 107.5], [1, 8, 106.0, 107.5, 108.0]),
)


def test_spans_have_the_names_of_the_plans_and_times_from_the_start() -> None:
    trace = measured([RECEIVER, SENDER], NAMES, 100.0, 109.0)
    assert [(s.name, s.kind, s.device, s.start, s.finish) for s in trace.spans] == [
        ("read", "call", AT_PS, 0.5, 1.0),
        ("w:0", "wait", AT_WORKER, 1.0, 3.5),
        ("dot", "program", AT_WORKER, 4.0, 6.0),
    ]
    assert trace.spans[0].details == {"calls": "identity"}
    assert trace.spans[2].details == {
        "runs": "c0ffee",
        "operations": "dot, sum",
        "seconds of dispatch": 0.5,
    }
    assert trace.details["seconds of the call"] == 9.0
    assert trace.details[f"clock error of {PS} in seconds"] == 0.25


def test_a_transfer_does_not_have_the_time_for_which_its_receiver_was_busy() -> None:
    between, inside = measured([RECEIVER, SENDER], NAMES, 100.0, 109.0).transfers
    assert (between.name, between.source, between.target) == ("w:0", AT_PS, AT_WORKER)
    assert (between.n_bytes, between.start, between.finish) == (64, 2.0, 3.5)
    assert (inside.name, inside.start, inside.finish) == ("dot:0", 7.5, 8.0)


def test_clocks_that_disagree_never_give_a_transfer_that_ends_before_it_starts() -> None:
    early = record(WORKER, AT_WORKER, received=rows([0, 64, 101.0, 101.0, 101.0]))
    (sent,) = measured([SENDER, early], NAMES, 100.0, 109.0).transfers
    assert sent.start == sent.finish == 2.0


def test_what_the_plans_do_not_have_is_numbered() -> None:
    strange = record(PS, AT_PS, spans=rows([0, 17, 1, 101.0, 102.0, 102.0]))
    (span,) = measured([strange], NAMES, 100.0, 109.0).spans
    assert span.name == "instruction 17"


def test_statistics_have_each_device_with_what_it_ran_sent_and_received() -> None:
    stats = StepStats(measured([SENDER, RECEIVER], NAMES, 100.0, 109.0))
    found = {one.device: one.node_stats for one in stats.dev_stats}
    assert [each.node_name for each in found[AT_PS]] == ["read", "w:0"]
    labels = [each.timeline_label for each in found[AT_WORKER]]
    assert f"w:0 = receive from {AT_PS}, 64 bytes" in labels
    (dot,) = [each for each in found[AT_WORKER] if each.node_name == "dot"]
    assert dot.timeline_label == "dot = program(dot, sum)"
    assert (dot.all_start_micros, dot.all_end_rel_micros) == (4_000_000, 2_000_000)
    assert dot.op_start_rel_micros == 500_000
    assert StepStats().dev_stats == ()


def test_a_timeline_is_the_trace_in_chrome_s_format() -> None:
    stats = StepStats(measured([SENDER, RECEIVER], NAMES, 100.0, 109.0))
    text = Timeline(stats).generate_chrome_trace_format()
    assert text == stats.trace.to_chrome()
    assert len(slices_of(checked_events(text), "send")) == 2
    plain = checked_events(Timeline(stats).generate_chrome_trace_format(show_dataflow=False))
    assert not [event for event in plain if event["ph"] in "sf"]
    assert len(slices_of(plain, "program")) == 1


def test_a_timeline_has_no_memory() -> None:
    with pytest.raises(tf.errors.UnimplementedError, match="omit show_memory"):
        Timeline(StepStats()).generate_chrome_trace_format(show_memory=True)

"""Traces and their Chrome form."""

from __future__ import annotations

import json
import math

import pytest

import jflow as tf
from jflow.plan.trace import Span, Trace, Transfer, merged
from tests.plan.trace.chrome import checked_events, processes_of, slices_of

TRACE = Trace(
    "measured",
    (
        Span("matmul", "program", "/device:CPU:0", 0.0, 0.002, {"operations": "matmul, add"}),
        Span("matmul", "program", "/device:CPU:0", 0.001, 0.003),
        Span("recv", "wait", "/device:CPU:1", 0.0, 0.0035),
        Span("add", "program", "/device:CPU:1", 0.0035, 0.005),
    ),
    (Transfer("y", "/device:CPU:0", "/device:CPU:1", 4096, 0.003, 0.0035),),
)


def test_a_trace_ends_with_its_last_span_or_transfer() -> None:
    assert TRACE.seconds == 0.005
    late = Transfer("z", "/device:CPU:1", "/device:CPU:2", 8, 0.005, 0.006)
    assert Trace("measured", TRACE.spans, (late,)).seconds == 0.006
    assert Trace("empty").seconds == 0.0


def test_each_device_is_a_process_of_chrome() -> None:
    late = Transfer("z", "/device:CPU:1", "/device:CPU:2", 8, 0.005, 0.006)
    events = checked_events(Trace("measured", TRACE.spans, (*TRACE.transfers, late)).to_chrome())
    assert processes_of(events) == ["/device:CPU:0", "/device:CPU:1", "/device:CPU:2"]


def test_spans_are_slices_in_microseconds_with_their_details() -> None:
    events = checked_events(TRACE.to_chrome())
    first, second, add = slices_of(events, "program")
    assert (first["name"], first["ts"], first["dur"]) == ("matmul", 0.0, 2000.0)
    assert first["args"] == {"operations": "matmul, add"}
    assert (add["ts"], add["dur"]) == (3500.0, 1500.0)
    assert first["tid"] != second["tid"]  # they overlap
    (wait,) = slices_of(events, "wait")
    assert wait["pid"] == add["pid"]


def test_a_transfer_is_an_arrow_from_its_sender_to_its_receiver() -> None:
    events = checked_events(TRACE.to_chrome())
    (start,) = [event for event in events if event["ph"] == "s"]
    (end,) = [event for event in events if event["ph"] == "f"]
    (sent,) = slices_of(events, "send")
    (received,) = slices_of(events, "receive")
    assert (start["pid"], start["ts"]) == (sent["pid"], 3000.0)
    assert end["pid"] == received["pid"] != sent["pid"]
    assert end["ts"] == 3499.999, "the last moment inside of the slice, which ends at 3500"
    assert sent["args"]["bytes"] == 4096


def test_many_overlapping_spans_use_as_few_tracks_as_possible() -> None:
    spans = tuple(Span(f"s{i}", "call", "d", i, i + 2.5) for i in range(12))
    events = checked_events(Trace("t", spans).to_chrome())
    assert len({event["tid"] for event in slices_of(events, "call")}) == 3


def test_merged_traces_stand_one_above_the_other() -> None:
    simulated = Trace("simulated", (Span("x", "operation", "/device:CPU:0", 0.0, 0.001),))
    both = merged(simulated, TRACE)
    assert both.title == "simulated, measured"
    assert both.seconds == TRACE.seconds
    assert processes_of(checked_events(both.to_chrome())) == [
        "simulated: /device:CPU:0",
        "measured: /device:CPU:0",
        "measured: /device:CPU:1",
    ]


def test_merged_traces_of_one_title_are_numbered() -> None:
    assert merged(TRACE, TRACE).devices == (
        "measured 0: /device:CPU:0",
        "measured 0: /device:CPU:1",
        "measured 1: /device:CPU:0",
        "measured 1: /device:CPU:1",
    )


def test_details_of_a_trace_are_written_beside_its_events() -> None:
    text = Trace("measured", details={"clock error": 2e-05}).to_chrome()
    assert json.loads(text)["otherData"] == {"title": "measured", "clock error": 2e-05}


def test_a_span_has_a_known_kind_and_ends_after_it_starts() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="expected one of operation, program"):
        Span("x", "programme", "d", 0.0, 1.0)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"finishes at 0\.5 s, before"):
        Span("x", "call", "d", 1.0, 0.5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="before it starts"):
        Transfer("x", "a", "b", 8, math.nan, 1.0)

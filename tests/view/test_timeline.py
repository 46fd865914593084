"""Timelines are checked as documents: what they say, and where their bars and arrows are."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jflow as tf
from jflow.inspect import timeline
from jflow.lab import STRATEGIES, random_problem, scheduled, simulate, trace_of
from jflow.plan.trace import Span, Trace, Transfer
from jflow.plan.trace.tracks import tracks_of
from jflow.view.timeline import MAX_ARROWS
from tests.view.test_picture import SVG, Picture

PS = "/job:ps/task:0/device:CPU:0"
WORKER = "/job:worker/task:0/device:CPU:0"
STEP = Trace(
    "measured",
    (
        Span("read", "call", PS, 0.0, 0.001),
        Span("model/dot", "program", WORKER, 0.002, 0.008, {"operations": "dot, add"}),
        Span("gradient", "wait", PS, 0.001, 0.009),
    ),
    (
        Transfer("read:0", PS, WORKER, 4096, 0.001, 0.002),
        Transfer("dot:0", WORKER, PS, 2048, 0.008, 0.009),
    ),
)


def bars(found: Picture, kind: str = "op span") -> list[tuple[str, float, float, float]]:
    """The first line of the title of each bar, with its left, right and upper edge."""
    edges = []
    for each in found.groups(kind):
        shape = each.find(f"{SVG}rect")
        assert shape is not None
        x, width, y = (float(shape.get(name, "")) for name in ("x", "width", "y"))
        edges.append((each.findtext(f"{SVG}title", "").split("\n")[0], x, x + width, y))
    return edges


def test_bars_are_in_the_lane_of_their_device_where_their_time_is() -> None:
    found = Picture(timeline(STEP))
    assert found.texts("device") == [PS, WORKER]
    by_name = {name: (left, right, top) for name, left, right, top in bars(found)}
    assert by_name["read"][1] <= by_name["gradient"][0] + 0.2
    assert by_name["read"][1] < by_name["model/dot"][0] < by_name["model/dot"][1]
    assert by_name["read"][2] == by_name["gradient"][2] < by_name["model/dot"][2]
    first, last = by_name["read"][0], by_name["gradient"][1]
    assert (by_name["model/dot"][0] - first) / (last - first) == pytest.approx(2 / 9, abs=0.01)


def test_titles_have_names_times_and_details() -> None:
    found = Picture(timeline(STEP))
    assert found.title("model/dot") == (
        "model/dot\nprogram on /job:worker/task:0/device:CPU:0\nfrom 2 ms to 8 ms\ntakes 6 ms\n"
        "operations: dot, add"
    )
    assert found.title("read:0", "arrow") == (
        "read:0\n/job:ps/task:0/device:CPU:0 → /job:worker/task:0/device:CPU:0\n"
        "4 KiB in 1 ms, from 1 ms"
    )
    assert found.texts("entry") == ["program", "function of the host", "wait", "2 transfers, 6 KiB"]


def test_what_overlaps_is_in_rows() -> None:
    spans = [Span(name, "program", PS, 0.0, 1.0) for name in "abc"]
    tops = {top for _, _, _, top in bars(Picture(timeline(Trace("", tuple(spans)))))}
    assert len(tops) == 3


def test_spans_that_cannot_be_distinguished_are_one_bar() -> None:
    short = [Span(f"s{i}", "program", PS, i * 1e-6, (i + 0.5) * 1e-6) for i in range(5000)]
    long = Span("long", "program", PS, 1.0, 2.0)
    found = Picture(timeline(Trace("", (*short, long))))
    names = [name for name, *_ in bars(found)]
    assert sum(int(name.split()[0]) for name in names if name.endswith("in all")) == 5000
    assert "long" in names
    assert len(names) < 20


def test_a_large_trace_has_a_bounded_picture() -> None:
    devices = [f"device {i}" for i in range(200)]  # in this order, so 100 come after 99
    spans = [Span("s", "program", devices[i % 200], i, i + 1) for i in range(20_000)]
    moves = [Transfer("t", devices[i % 90], devices[i % 80], i, i, i + 1) for i in range(5000)]
    text = timeline(Trace("", tuple(spans), tuple(moves)))
    assert len(Picture(text).groups("arrow")) == MAX_ARROWS
    assert len(text) < 12_000_000


def test_nothing_ran() -> None:
    assert "nothing ran" in timeline(Trace("measured"))


def test_names_are_escaped() -> None:
    name = "<script>alert(1)</script>\x00"
    text = timeline(Trace(name, (Span(name, "program", name, 0, 1),)))
    assert "<script" not in text
    assert ET.fromstring(text) is not None


@pytest.mark.parametrize("trace", [STEP, Trace("measured")])
def test_the_card_of_a_trace_has_its_timeline(trace: Trace) -> None:
    assert timeline(trace) in trace._repr_html_()


def test_traced_and_simulated_steps_have_timelines() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder("float32", (64, 64))
        y = tf.numpy.sum(tf.numpy.dot(x, x))
        with tf.trace_steps() as traces:
            session.run(y, {x: np.ones((64, 64), np.float32)})
    assert Picture(timeline(traces[0])).groups("op span program")
    problem = random_problem("layered", 30, 3)
    simulated = trace_of(problem, simulate(problem, scheduled(problem, STRATEGIES["heft"])))
    found = Picture(timeline(simulated))
    assert len(found.groups("arrow")) == len(simulated.transfers)
    assert found.texts("device") == sorted(simulated.devices)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=30))
def test_no_two_intervals_of_a_track_overlap(pairs: list[tuple[int, int]]) -> None:
    intervals = [(float(start), float(start + length)) for start, length in pairs]
    tracks = tracks_of(intervals)
    for track in set(tracks):
        own = sorted(i for i, number in zip(intervals, tracks, strict=True) if number == track)
        assert all(a[1] <= b[0] for a, b in pairwise(own))
    depth = max(
        (sum(start <= time < finish for start, finish in intervals) for time, _ in intervals),
        default=0,
    )
    assert len(set(tracks)) <= max(depth, 1) if all(b > a for a, b in intervals) else True

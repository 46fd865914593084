"""Checks of JSON against Chrome's trace format."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any


def checked_events(text: str) -> list[dict[str, Any]]:
    """The events of a trace in Chrome's format, after they were checked against it.

    Each complete event has a name, a category, a start and a duration, numbers as process and
    thread that metadata names; flow events come in pairs of one start and one later end, each
    inside a slice of its thread; slices of a thread do not overlap.
    """
    trace = json.loads(text)
    assert trace["displayTimeUnit"] == "ms"
    events: list[dict[str, Any]] = trace["traceEvents"]
    assert {event["ph"] for event in events} <= {"M", "X", "s", "f"}
    for event in events:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event["ts"] >= 0
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    processes = {e["pid"] for e in events if e["name"] == "process_name"}
    slices = [event for event in events if event["ph"] == "X"]
    for event in slices:
        assert event["cat"]
        assert event["dur"] >= 0
        assert (event["pid"], event["tid"]) in named
        assert event["pid"] in processes
    _check_tracks(slices)
    _check_flows(events, slices)
    return events


def slices_of(events: list[dict[str, Any]], category: str) -> list[dict[str, Any]]:
    """The complete events of a category."""
    return [event for event in events if event["ph"] == "X" and event["cat"] == category]


def processes_of(events: list[dict[str, Any]]) -> list[str]:
    """The names of the processes, from top to bottom."""
    position = {
        e["pid"]: e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"
    }
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    return [names[pid] for pid in sorted(names, key=position.__getitem__)]


def _check_tracks(slices: list[dict[str, Any]]) -> None:
    tracks: dict[Any, list[tuple[float, float]]] = {}
    for event in slices:
        track = tracks.setdefault((event["pid"], event["tid"]), [])
        track.append((event["ts"], event["ts"] + event["dur"]))
    for times in tracks.values():
        times.sort()
        for (_, end), (start, _) in pairwise(times):
            assert end <= start + 0.002  # both are rounded to a nanosecond


def _check_flows(events: list[dict[str, Any]], slices: list[dict[str, Any]]) -> None:
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert max(Counter((e["id"], e["ph"]) for e in events if "id" in e).values(), default=1) == 1
    for key, start in starts.items():
        end = ends[key]
        assert start["ts"] <= end["ts"]
        assert end["bp"] == "e"
        assert (start["name"], start["cat"]) == (end["name"], end["cat"])
        for event in (start, end):
            assert any(
                one["pid"] == event["pid"]
                and one["tid"] == event["tid"]
                and one["ts"] <= event["ts"] <= one["ts"] + one["dur"] + 0.002
                for one in slices
            )

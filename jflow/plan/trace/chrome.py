"""Exports traces in Chrome's trace format, JSON that Perfetto and chrome://tracing open.

Each device is a process (`pid`). Spans of one kind are a track of it (`tid`), and so are the
transfers that it sends and those that it receives; what overlaps gets further tracks, because a
viewer nests what overlaps in one. A transfer is a slice on either side and an arrow from the first
to the second: a pair of flow events "s" and "f", which bind to the slices that enclose them.
Times are in microseconds.

Source: "Trace Event Format", the document that chrome://tracing and Perfetto refer to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jflow.plan.trace.spans import KINDS, Detail, Span, Transfer
from jflow.plan.trace.tracks import tracks_of

_TRACKS = {**{kind: f"{kind}s" for kind in KINDS}, "send": "sends", "receive": "receives"}
"""The name of the tracks of each category, in the order in which they stand."""

_WITHIN_S = 1e-9
"""How long before the end of a slice an arrow ends, so that it is inside; the format's resolution
in seconds."""


class _Slice(NamedTuple):
    """One complete event: a rectangle in the viewer."""

    device: str
    category: str
    name: str
    start: float
    finish: float
    details: Mapping[str, Detail]


class _Track(NamedTuple):
    """Process and thread ids of a track, in the terms of the format."""

    pid: int
    tid: int


def chrome_json(
    devices: Sequence[str],
    spans: Sequence[Span],
    transfers: Sequence[Transfer],
    about: Mapping[str, Detail],
) -> str:
    """Converts a trace to Chrome's JSON; see the head of this file.

    Args:
      devices: all devices that spans and transfers name, from top to bottom.
      spans, transfers: what happened.
      about: what is known about the whole of it.
    """
    slices = [_Slice(s.device, s.kind, s.name, s.start, s.finish, s.details) for s in spans]
    sent = [_side(one, one.source, "send") for one in transfers]
    received = [_side(one, one.target, "receive") for one in transfers]
    events, places = _track_events(devices, [*slices, *sent, *received])
    starts = places[len(slices) : len(slices) + len(sent)]
    for number, one in enumerate(transfers):
        source, target = starts[number], places[len(slices) + len(sent) + number]
        end = max(one.start, one.finish - _WITHIN_S)
        events.append(_flow("s", number, one, source, one.start))
        events.append({**_flow("f", number, one, target, end), "bp": "e"})
    return json.dumps(
        {"traceEvents": events, "displayTimeUnit": "ms", "otherData": dict(about)},
        allow_nan=False,
        separators=(",", ":"),
    )


def _side(one: Transfer, device: str, category: str) -> _Slice:
    details: dict[str, Detail] = {"bytes": one.n_bytes, "from": one.source, "to": one.target}
    return _Slice(device, category, one.name, one.start, one.finish, details)


def _track_events(
    devices: Sequence[str], slices: Sequence[_Slice]
) -> tuple[list[dict[str, Any]], list[_Track]]:
    """Returns the events of slices and of their tracks' names, and the track of each slice."""
    events: list[dict[str, Any]] = []
    places = [_Track(0, 0)] * len(slices)
    groups: dict[tuple[str, str], list[int]] = {}
    for number, one in enumerate(slices):
        groups.setdefault((one.device, one.category), []).append(number)
    for pid, device in enumerate(devices, start=1):
        events += _named("process", pid, 0, device, pid)
        tid = 0
        for category, title in _TRACKS.items():
            group = groups.get((device, category), ())
            tracks = tracks_of([slices[number][3:5] for number in group])
            for number, track in zip(group, tracks, strict=True):
                places[number] = _Track(pid, tid + track + 1)
                events.append(_complete(slices[number], places[number]))
            for track in range(max(tracks, default=-1) + 1):
                tid += 1
                events += _named(
                    "thread", pid, tid, title if not track else f"{title} {track}", tid
                )
    return events, places


def _named(what: str, pid: int, tid: int, name: str, position: int) -> list[dict[str, Any]]:
    place = {"ph": "M", "ts": 0, "pid": pid, "tid": tid}
    return [
        {**place, "name": f"{what}_name", "args": {"name": name}},
        {**place, "name": f"{what}_sort_index", "args": {"sort_index": position}},
    ]


def _complete(one: _Slice, place: _Track) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": one.name,
        "cat": one.category,
        "ts": _microseconds(one.start),
        "dur": _microseconds(one.finish - one.start),
        "pid": place.pid,
        "tid": place.tid,
        "args": dict(one.details),
    }


def _flow(phase: str, number: int, one: Transfer, place: _Track, time: float) -> dict[str, Any]:
    return {
        "ph": phase,
        "name": one.name,
        "cat": "transfer",
        "id": number,
        "ts": _microseconds(time),
        "pid": place.pid,
        "tid": place.tid,
    }


def _microseconds(seconds: float) -> float:
    """Converts seconds to microseconds, rounded to the nanosecond."""
    return round(seconds * 1e6, 3)

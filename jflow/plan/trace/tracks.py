"""`tracks_of`: rows for what overlaps in time."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def tracks_of(intervals: Sequence[tuple[float, float]]) -> list[int]:
    """Assigns intervals to as few tracks as possible, so that none overlaps another on its track.

    Args:
      intervals: the start and the finish of each.

    Returns:
      The track of each interval, from 0.
    """
    tracks = [0] * len(intervals)
    busy: list[tuple[float, int]] = []  # until when, which track
    free: list[int] = []
    n_tracks = 0
    for number in sorted(range(len(intervals)), key=lambda i: intervals[i]):
        start, finish = intervals[number]
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            track = heapq.heappop(free)
        else:
            track, n_tracks = n_tracks, n_tracks + 1
        tracks[number] = track
        heapq.heappush(busy, (finish, track))
    return tracks

"""Alignment of the clocks of tasks, from the times of a request and its answer."""

from __future__ import annotations

from typing import NamedTuple


class Exchange(NamedTuple):
    """When a request and its answer were where, in seconds.

    Attributes:
      sent, answered: by the clock of the caller.
      begun, ended: when the request had come and when the answer left, by the clock of the callee.
      is_one_clock: whether the two clocks are known to be one.
    """

    sent: float
    begun: float
    ended: float
    answered: float
    is_one_clock: bool = False


def offset_of(exchange: Exchange) -> tuple[float, float]:
    """What to add to times of the callee to get those of the caller, and how wrong it may be.

    A request comes after it was sent, and an answer leaves before it comes. So the offset lies in
    an interval, whose middle is the estimate and half of whose length, which is half of the round
    trip without the work in between, is the largest error (F. Cristian, "Probabilistic clock
    synchronization", 1989). Times that are shifted by it lie between those of the caller.
    """
    low = exchange.sent - exchange.begun
    high = exchange.answered - exchange.ended
    # A time namespace can make one clock two, which the interval then shows.
    if exchange.is_one_clock and low <= 0.0 <= high:
        return 0.0, 0.0
    return (low + high) / 2, max(high - low, 0.0) / 2

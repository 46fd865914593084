"""Interleaving of datasets, each of which is made from one element of an input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jflow.data.engine import grain
from jflow.data.stream import Cursor, State


@dataclass
class _Lane:
    """One of the datasets that are being read.

    Attributes:
      before: state of the input before the element that the dataset was made from.
      number: number of that element.
      elements: iterator of the dataset.
    """

    before: State
    number: int
    elements: Cursor


class Interleaved(grain.DatasetIterator[Any]):
    """Yields `block` elements of a lane, then those of the next, round-robin.

    A lane whose dataset has ended gets a new one when it is next again.
    """

    def __init__(
        self, parent: Cursor, open_lane: Callable[[int, Any], Cursor], lanes: int, block: int
    ) -> None:
        super().__init__(parent)
        self._open_lane = open_lane
        self._block = block
        self._lanes: list[_Lane | None] = [None] * lanes
        self._current = 0
        self._n_yielded = 0
        self._read = 0
        self._ended = False

    def __next__(self) -> Any:
        while not self._ended or any(self._lanes):
            lane = self._lanes[self._current]
            if lane is None and not self._ended:
                lane = self._lanes[self._current] = self._next_lane()
            if lane is None:
                self._next_current()
                continue
            try:
                element = next(lane.elements)
            except StopIteration:
                lane.elements.close()
                self._lanes[self._current] = None
                self._next_current()
                continue
            self._n_yielded += 1
            if self._n_yielded == self._block:
                self._next_current()
            return element
        raise StopIteration

    def _next_current(self) -> None:
        self._current = (self._current + 1) % len(self._lanes)
        self._n_yielded = 0

    def _next_lane(self) -> _Lane | None:
        before = self._parent.get_state()
        try:
            element = next(self._parent)
        except StopIteration:
            self._ended = True
            return None
        self._read += 1
        return _Lane(before, self._read - 1, self._open_lane(self._read - 1, element))

    def get_state(self) -> State:
        return {
            "parent": self._parent.get_state(),
            "read": self._read,
            "turn": self._current,
            "given": self._n_yielded,
            "lanes": [lane and _lane_state(lane) for lane in self._lanes],
        }

    def set_state(self, state: State) -> None:
        self._close_lanes()
        # To resume a lane moves the input back to the lane's element, so the input comes last.
        self._lanes = [lane and self._resumed(lane) for lane in state["lanes"]]
        self._parent.set_state(state["parent"])
        self._read, self._current, self._n_yielded = state["read"], state["turn"], state["given"]
        self._ended = False

    def _resumed(self, state: State) -> _Lane:
        self._parent.set_state(state["before"])
        elements = self._open_lane(state["number"], next(self._parent))
        elements.set_state(state["elements"])
        return _Lane(state["before"], state["number"], elements)

    def _close_lanes(self) -> None:
        for lane in self._lanes:
            if lane is not None:
                lane.elements.close()

    def close(self) -> None:
        self._close_lanes()
        super().close()


def _lane_state(lane: _Lane) -> State:
    state = lane.elements.get_state()
    return {"before": lane.before, "number": lane.number, "elements": state}

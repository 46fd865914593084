"""Streams that Grain lacks: datasets that are read from the start, element by element.

The state of an iterator is a dictionary of numbers and of the states of its inputs. `set_state`
takes an iterator at any position to the position at which `get_state` was called.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jflow.data.engine import grain

State = dict[str, Any]
Cursor = grain.DatasetIterator[Any]
"""Grain's iterator, which has a state."""


class Stream(grain.IterDataset[Any]):
    """A dataset read in order; a function makes its iterators from the iterators of its inputs."""

    def __init__(self, start: Callable[..., Cursor], *inputs: grain.IterDataset[Any]) -> None:
        super().__init__(inputs)
        self._start = start

    def __iter__(self) -> Cursor:
        return self._start(*(iter(parent) for parent in self.parents))


class _Selected(grain.DatasetIterator[Any]):
    """Base of iterators that skip elements; the position is the number of elements read."""

    def __init__(self, parent: Cursor) -> None:
        super().__init__(parent)
        self._read = 0

    def get_state(self) -> State:
        return {"parent": self._parent.get_state(), "read": self._read}

    def set_state(self, state: State) -> None:
        self._parent.set_state(state["parent"])
        self._read = state["read"]


class Sliced(_Selected):
    """Yields the elements whose numbers are in a slice, like `itertools.islice`."""

    def __init__(self, parent: Cursor, wanted: slice) -> None:
        super().__init__(parent)
        self._wanted = range(*wanted.indices(sys.maxsize))

    def __next__(self) -> Any:
        while self._wanted and self._read <= self._wanted[-1]:
            element = next(self._parent)
            self._read += 1
            if self._read - 1 in self._wanted:
                return element
        raise StopIteration


class Filtered(_Selected):
    """Yields the elements for which a function of number and element returns True."""

    def __init__(self, parent: Cursor, wanted: Callable[[int, Any], bool]) -> None:
        super().__init__(parent)
        self._wanted = wanted

    def __next__(self) -> Any:
        while True:
            element = next(self._parent)
            self._read += 1
            if self._wanted(self._read - 1, element):
                return element


class Unbatched(grain.DatasetIterator[Any]):
    """Yields the elements of batches, which `unstack` splits.

    Its position is that of a batch and the number of its elements that were yielded.
    """

    def __init__(self, parent: Cursor, unstack: Callable[[Any], list[Any]]) -> None:
        super().__init__(parent)
        self._unstack = unstack
        self._before = parent.get_state()
        self._batch: list[Any] = []
        self._n_yielded = 0

    def __next__(self) -> Any:
        while self._n_yielded == len(self._batch):
            self._before = self._parent.get_state()
            self._batch, self._n_yielded = self._unstack(next(self._parent)), 0
        self._n_yielded += 1
        return self._batch[self._n_yielded - 1]

    def get_state(self) -> State:
        if self._n_yielded == len(self._batch):
            return {"parent": self._parent.get_state(), "given": 0}
        return {"parent": self._before, "given": self._n_yielded}

    def set_state(self, state: State) -> None:
        self._before, self._n_yielded = state["parent"], state["given"]
        self._parent.set_state(self._before)
        self._batch = self._unstack(next(self._parent)) if self._n_yielded else []


class Concatenated(grain.DatasetIterator[Any]):
    """Yields the elements of its inputs, one input after the other."""

    def __init__(self, *parents: Cursor) -> None:
        super().__init__(parents)
        self._current = 0

    def __next__(self) -> Any:
        while self._current < len(self._parents):
            try:
                return next(self._parents[self._current])
            except StopIteration:
                self._current += 1
        raise StopIteration

    def get_state(self) -> State:
        states = [parent.get_state() for parent in self._parents]
        return {"parents": states, "current": self._current}

    def set_state(self, state: State) -> None:
        for parent, inner in zip(self._parents, state["parents"], strict=True):
            parent.set_state(inner)
        self._current = state["current"]


class Repeated(grain.DatasetIterator[Any]):
    """Yields the elements of one epoch after the other; `start` makes an epoch's iterator."""

    def __init__(self, start: Callable[[int], Cursor], count: int | None) -> None:
        super().__init__()
        self._start = start
        self._count = count
        self._epoch = 0
        self._inner: Cursor | None = None

    def __next__(self) -> Any:
        is_new_epoch = False
        while self._epoch != self._count:
            if self._inner is None:
                self._inner, is_new_epoch = self._start(self._epoch), True
            try:
                return next(self._inner)
            except StopIteration:
                self.close_inner()
                self._epoch += 1
            if is_new_epoch and self._count is None:
                break  # the epoch was empty, and so would be all others
        raise StopIteration

    def get_state(self) -> State:
        inner = None if self._inner is None else self._inner.get_state()
        return {"epoch": self._epoch, "inner": inner}

    def set_state(self, state: State) -> None:
        self.close_inner()
        self._epoch = state["epoch"]
        if state["inner"] is not None:
            self._inner = self._start(self._epoch)
            self._inner.set_state(state["inner"])

    def close_inner(self) -> None:
        """Closes the iterator of the current epoch."""
        if self._inner is not None:
            self._inner.close()
        self._inner = None

    def close(self) -> None:
        self.close_inner()
        super().close()


@dataclass
class _Lane:
    """One of the datasets that are being interleaved.

    Attributes:
      before: state of the input before the element that the dataset was made from.
      number: number of that element.
      elements: iterator of the dataset.
    """

    before: State
    number: int
    elements: Cursor


class Interleaved(grain.DatasetIterator[Any]):
    """Yields `block` elements of each lane in turn, round-robin.

    A lane whose dataset has ended gets the next dataset on its next turn.
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

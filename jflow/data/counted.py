"""A Python iterable as a source, whose position is the number of elements it has yielded."""

from __future__ import annotations

import collections.abc
from collections.abc import Callable, Iterable
from typing import Any

from jflow.compiler.graph.stack import EagerDecoding
from jflow.data.element import as_element
from jflow.data.engine import grain
from jflow.data.function import AtElement
from jflow.data.stream import State
from jflow.errors import DataLossError

_END = object()


class Counted(grain.DatasetIterator[Any]):
    """Iterates an iterable; to restore a position it starts it again and skips elements."""

    def __init__(self, transform: str, start: Callable[[], Iterable[Any]]) -> None:
        super().__init__()
        self._transform = transform
        self._start = start
        self._given = 0
        self._values: collections.abc.Iterator[Any] | None = None

    def __next__(self) -> Any:
        with AtElement(self._transform, self._given), EagerDecoding():
            if self._values is None:
                self._values = self._opened()
            value = next(self._values, _END)
            if value is not _END:
                value = as_element(value)
        if value is _END:
            raise StopIteration
        self._given += 1
        return value

    def _opened(self) -> collections.abc.Iterator[Any]:
        values = iter(self._start())
        for skipped in range(self._given):
            if next(values, _END) is _END:
                raise DataLossError(
                    f"{self._transform} has {skipped} elements now, but the position to continue "
                    f"from is after element {self._given}; provide the data of the first pass, or "
                    "start without a position"
                )
        return values

    def get_state(self) -> State:
        return {"given": self._given}

    def set_state(self, state: State) -> None:
        self._close_values()
        self._given = state["given"]

    def _close_values(self) -> None:
        # A generator may hold resources, such as files, until it is closed.
        if isinstance(self._values, collections.abc.Generator):
            self._values.close()
        self._values = None

    def close(self) -> None:
        self._close_values()
        super().close()

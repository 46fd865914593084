"""The iterator of a dataset, and the stores that save its position."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Protocol, Self

from jflow.base.files import replace_file
from jflow.base.handles import Closing
from jflow.base.tracebacks import handled, hide_frames
from jflow.data.stream import Cursor, State
from jflow.errors import DataLossError, FailedPreconditionError, InvalidArgumentError

FORMAT = 1


class PositionStore(Protocol):
    """Stores an iterator's position: a text of usually a few hundred bytes."""

    def load(self) -> str | None:
        """Returns the text saved last; None if there is none."""

    def save(self, text: str) -> None:
        """Replaces the text atomically."""


class FilePosition:
    """Stores an iterator's position in a file.

    Args:
      path: path of the file, in an existing directory.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def __repr__(self) -> str:
        return f"FilePosition({str(self._path)!r})"

    def load(self) -> str | None:
        """Returns the text saved last; None if the file does not exist."""
        return self._path.read_text() if self._path.exists() else None

    def save(self, text: str) -> None:
        """Replaces the file atomically."""
        replace_file(self._path, text)


def encode_position(transforms: Sequence[str], position: dict[str, Any]) -> dict[str, Any]:
    """Returns the state that contains a position and its pipeline's transforms, in JSON types."""
    return {"format": FORMAT, "pipeline": list(transforms), "position": position}


def decode_position(transforms: Sequence[str], state: Any) -> dict[str, Any]:
    """Returns the position in a state, which must come from a pipeline with the same transforms.

    Raises:
      InvalidArgumentError: if the value is not a state of an iterator.
      FailedPreconditionError: if it belongs to another pipeline, or has another format.
    """
    if not isinstance(state, dict) or state.keys() != {"format", "pipeline", "position"}:
        raise InvalidArgumentError(
            f"expected a result of get_state of a dataset iterator, got {state!r:.200}"
        )
    if state["format"] != FORMAT:
        raise FailedPreconditionError(
            f"the position has format {state['format']}, but this version of jflow reads format "
            f"{FORMAT}; restore it with the version that saved it, or start without a position"
        )
    for number, (there, here) in enumerate(zip_longest(state["pipeline"], transforms)):
        if there != here:
            raise FailedPreconditionError(
                f"the position belongs to another pipeline: its transform {number} is "
                f"{there or 'missing'}, but here it is {here or 'missing'}; restore it into the "
                "pipeline that it was saved from, or start without a position"
            )
    position: dict[str, Any] = state["position"]
    return position


def parse_position(text: str) -> Any:
    """Parses a saved text as a state. Raises DataLossError if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise DataLossError(
            f"the saved position is not JSON: {text[:200]!r}; remove it to start from the beginning"
        ) from error


class DatasetIterator(Closing):
    """One pass over a dataset; made by `Dataset.iterator` or `iter(dataset)`.

    Threads may share an iterator; each element goes to one of them. After an error the position is
    before the element that failed, so the next call retries it.
    """

    def __init__(
        self,
        transforms: Sequence[str],
        start: Callable[[], Cursor],
        store: PositionStore | None,
        save_every: int,
    ) -> None:
        self._transforms = transforms
        self._start = start
        self._store = store
        self._save_every = save_every
        self._lock = threading.Lock()
        self._inner: Cursor | None = None
        self._position: State | None = None  # where the inner iterator starts
        self._unsaved = 0
        self._closed = False
        position = None if store is None else store.load()
        if position is not None:
            self._position = decode_position(transforms, parse_position(position))

    def __iter__(self) -> Self:
        return self

    @handled
    def __next__(self) -> Any:
        try:
            with self._lock:
                self._check_open()
                # A request for the next element means that the earlier ones were processed.
                if self._unsaved >= self._save_every:
                    self._save()
                inner = self._open()
                before = inner.get_state()
                try:
                    element = next(inner)
                except StopIteration:
                    raise
                except BaseException:
                    self._restart(before)
                    raise
                self._unsaved += 1
                return element
        except Exception as error:
            hide_frames(error)
            raise

    def get_state(self) -> dict[str, Any]:
        """Returns the position after the last returned element.

        Returns:
          A dictionary of JSON types, for `set_state` of an iterator of the same pipeline in this
          or another process; it contains the transforms of the pipeline.

        Raises:
          FailedPreconditionError: if the iterator is closed.
        """
        with self._lock:
            self._check_open()
            return self._state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Sets the position, after which the next element is read.

        Args:
          state: a result of `get_state`.

        Raises:
          InvalidArgumentError: if it is not a state.
          FailedPreconditionError: if it belongs to another pipeline, or the iterator is closed; the
            position does not change.
        """
        with self._lock:
            self._check_open()
            self._restart(decode_position(self._transforms, state))

    def close(self) -> None:
        """Saves the position if there is a store, and releases all threads and files."""
        with self._lock:
            if self._closed:
                return
            try:
                if self._store is not None:
                    self._save()
            finally:
                self._end()

    def _leave(self, failed: bool) -> None:
        if not failed:
            self.close()
            return
        # The last element was not processed, so the position that was saved before stays.
        with self._lock:
            self._end()

    def __repr__(self) -> str:
        state = "closed " if self._closed else ""
        return f"<jflow.data.DatasetIterator {state}{' | '.join(self._transforms)}>"

    def _check_open(self) -> None:
        if self._closed:
            raise FailedPreconditionError(
                "this dataset iterator is closed; create another with dataset.iterator()"
            )

    def _open(self) -> Cursor:
        if self._inner is None:
            inner = self._start()
            try:
                if self._position is not None:
                    inner.set_state(self._position)
            except BaseException:
                inner.close()
                raise
            self._inner = inner
        return self._inner

    def _restart(self, position: State) -> None:
        if self._inner is not None:
            self._inner.close()
        self._inner = None
        self._position = position

    def _state(self) -> dict[str, Any]:
        if self._inner is None and self._position is not None:
            return encode_position(self._transforms, self._position)
        return encode_position(self._transforms, self._open().get_state())

    def _save(self) -> None:
        if self._store is not None:
            self._store.save(json.dumps(self._state()))
        self._unsaved = 0

    def _end(self) -> None:
        self._closed = True
        if self._inner is not None:
            self._inner.close()
        self._inner = None

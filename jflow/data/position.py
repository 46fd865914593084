"""Saved positions of pipelines: stores, and the check that a position fits a pipeline."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Protocol

from jflow.errors import DataLossError, FailedPreconditionError, InvalidArgumentError

FORMAT = 1


class PositionStore(Protocol):
    """Storage for the position of an iterator: one text, usually of a few hundred bytes."""

    def load(self) -> str | None:
        """Returns the text that was saved last, or None."""

    def save(self, text: str) -> None:
        """Replaces the text atomically."""


class FilePosition:
    """Storage for the position of an iterator in a file.

    Args:
      path: path of the file, in an existing directory.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def __repr__(self) -> str:
        return f"FilePosition({str(self._path)!r})"

    def load(self) -> str | None:
        """Returns the text that was saved last, or None if the file does not exist."""
        return self._path.read_text() if self._path.exists() else None

    def save(self, text: str) -> None:
        """Replaces the file atomically."""
        new = self._path.with_name(f"{self._path.name}.new")
        new.write_text(text)
        new.replace(self._path)


def packed(transforms: Sequence[str], position: dict[str, Any]) -> dict[str, Any]:
    """Returns a position together with the transforms of its pipeline, as JSON types."""
    return {"format": FORMAT, "pipeline": list(transforms), "position": position}


def unpacked(transforms: Sequence[str], state: Any) -> dict[str, Any]:
    """Returns the position in a state of the pipeline with these transforms.

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


def parsed(text: str) -> Any:
    """Parses a saved text as a state. Raises DataLossError if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise DataLossError(
            f"the saved position is not JSON: {text[:200]!r}; remove it to start from the beginning"
        ) from error

"""Positions in a pipeline: where they are kept, and to which pipeline one belongs."""

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
    """Where an iterator keeps its position: one text, of a few hundred bytes as a rule."""

    def load(self) -> str | None:
        """The text that was saved last, or None."""

    def save(self, text: str) -> None:
        """Replaces the text, wholly or not at all."""


class FilePosition:
    """A position kept in a file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def __repr__(self) -> str:
        return f"FilePosition({str(self._path)!r})"

    def load(self) -> str | None:
        """The text that was saved last, or None where there is no file yet."""
        return self._path.read_text() if self._path.exists() else None

    def save(self, text: str) -> None:
        """Replaces the file, wholly or not at all."""
        new = self._path.with_name(f"{self._path.name}.new")
        new.write_text(text)
        new.replace(self._path)


def packed(transforms: Sequence[str], position: dict[str, Any]) -> dict[str, Any]:
    """A position together with the pipeline it is good for, as JSON's types."""
    return {"format": FORMAT, "pipeline": list(transforms), "position": position}


def unpacked(transforms: Sequence[str], state: Any) -> dict[str, Any]:
    """The position in a state, which must be of the pipeline with these transforms.

    Raises:
      InvalidArgumentError: the value is not a state of an iterator.
      FailedPreconditionError: it is one of another pipeline.
    """
    if not isinstance(state, dict) or state.keys() != {"format", "pipeline", "position"}:
        raise InvalidArgumentError(
            f"a position is what get_state of a dataset's iterator returned, got {state!r:.200}"
        )
    if state["format"] != FORMAT:
        raise FailedPreconditionError(
            f"the position has the format {state['format']}, this jflow reads {FORMAT}; "
            "restore it with the jflow that saved it, or start without a position"
        )
    for number, (there, here) in enumerate(zip_longest(state["pipeline"], transforms)):
        if there != here:
            raise FailedPreconditionError(
                f"the position belongs to another pipeline: its transform {number} is "
                f"{there or 'missing'}, and here it is {here or 'missing'}; restore it into the "
                "pipeline it was taken from, or start without a position"
            )
    position: dict[str, Any] = state["position"]
    return position


def parsed(text: str) -> Any:
    """The state in a kept text."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise DataLossError(
            f"the kept position is not JSON: {text[:200]!r}; remove it to start from the beginning"
        ) from error

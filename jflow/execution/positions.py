"""The operations on positions that plans call."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jflow.execution.waiting import Operation, attempting, looking
from jflow.resources import Attempt, Position, SavePosition
from jflow.values import Array


def _save(text: Array) -> Attempt:
    return SavePosition(text.item())


def _load(position: Position) -> Array:
    """The text, if there is one: string[0] or string[1]."""
    found = np.empty(0 if position.text is None else 1, object)
    found[:] = position.text
    return found


POSITION_OPERATIONS: Mapping[str, Operation] = {
    "position.save": attempting(_save),
    "position.load": looking(_load),
}

"""Kernels of iterator states."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jflow.base.values import Array
from jflow.state.resources.attempt import Attempt
from jflow.state.resources.iterator_state.state import SavedIteratorState, SaveIteratorState
from jflow.state.resources.kernel import Kernel, query, single_attempt


def _save(text: Array) -> Attempt:
    return SaveIteratorState(text.item())


def _load(state: SavedIteratorState) -> Array:
    """Returns the saved text as string[1], or string[0] if nothing was saved."""
    found = np.empty(0 if state.text is None else 1, object)
    found[:] = state.text
    return found


KERNELS: Mapping[str, Kernel] = {
    "iterator_state.save": single_attempt(_save),
    "iterator_state.load": query(_load),
}

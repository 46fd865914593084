"""Rows out of batches, and batches out of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jflow.values import Array, TensorSpec


def row_of(batch: Array, index: int) -> Array:
    """A copy of one slice along the first dimension; a view would keep the whole batch alive."""
    row: Array = batch[index, ...].copy()
    return row


def ends_in_bytes(batches: Sequence[Array]) -> Array:
    """How much memory the first 0, 1, 2, ... rows of batches of one length take together."""
    n_rows = len(batches[0])
    ends: Array = np.arange(n_rows + 1)
    ends *= sum([batch.nbytes for batch in batches]) // max(1, n_rows)
    for batch in batches:
        if batch.dtype == object:
            lengths = np.fromiter(map(len, batch.flat), np.int64, batch.size)
            ends[1:] += lengths.reshape(n_rows, math.prod(batch.shape[1:])).sum(axis=1).cumsum()
    return ends


def stack(rows: Sequence[Array], component: TensorSpec) -> Array:
    """Arrays of a component, stacked along a new first dimension.

    Arrays of different shapes are padded at their ends, with zeros or with empty strings, to the
    largest size that is there in each dimension. Without any array the sizes are those of the
    component, and 0 where it has none.
    """
    shapes = {row.shape for row in rows} or {tuple(size or 0 for size in component.shape or ())}
    if len(shapes) == 1 and not component.is_string and rows:
        return np.array(rows, component.numpy_dtype)
    sizes = tuple(map(max, zip(*shapes, strict=True)))
    fill: Any = b"" if component.is_string else 0
    batch: Array = np.full((len(rows), *sizes), fill, component.numpy_dtype)
    for i, row in enumerate(rows):
        # The dots make NumPy take a scalar string out of its array and not put the array in.
        corner: tuple[Any, ...] = (i, *map(slice, row.shape), ...)
        batch[corner] = row
    return batch

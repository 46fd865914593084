"""Conversion between rows and batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jflow.base.values import Array, TensorSpec


def row_of(batch: Array, index: int) -> Array:
    """Copies one slice along the first dimension; a view would keep the whole batch alive."""
    row: Array = batch[index, ...].copy()
    return row


def ends_in_bytes(batches: Sequence[Array]) -> Array:
    """Returns the bytes of the first 0, 1, 2, ... rows of all batches together, i64[n + 1]."""
    n_rows = len(batches[0])
    ends: Array = np.arange(n_rows + 1)
    ends *= sum([batch.nbytes for batch in batches]) // max(1, n_rows)
    for batch in batches:
        if batch.dtype == object:
            lengths = np.fromiter(map(len, batch.flat), np.int64, batch.size)
            ends[1:] += lengths.reshape(n_rows, math.prod(batch.shape[1:])).sum(axis=1).cumsum()
    return ends


def stack(rows: Sequence[Array], component: TensorSpec) -> Array:
    """Stacks the arrays of a component along a new first dimension.

    Arrays of different shapes are padded at their ends, with zeros or empty strings, to the largest
    size in each dimension. Without arrays the sizes are those of the component, 0 if unknown.
    """
    shapes = {row.shape for row in rows} or {tuple(size or 0 for size in component.shape or ())}
    if len(shapes) == 1 and not component.is_string and rows:
        return np.array(rows, component.numpy_dtype)
    sizes = tuple(map(max, zip(*shapes, strict=True)))
    fill: Any = b"" if component.is_string else 0
    batch: Array = np.full((len(rows), *sizes), fill, component.numpy_dtype)
    for i, row in enumerate(rows):
        # The ellipsis makes NumPy store the string of a 0-d array and not the array itself.
        corner: tuple[Any, ...] = (i, *map(slice, row.shape), ...)
        batch[corner] = row
    return batch

"""Rows out of batches, and batches out of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jflow.resources.component import Array, Component, n_bytes_of


def row_of(batch: Array, index: int) -> Array:
    """A copy of one slice along the first dimension; a view would keep the whole batch alive."""
    row: Array = batch[index, ...].copy()
    return row


def row_bytes(batch: Array) -> list[int]:
    """How much memory each row of a batch takes."""
    if batch.dtype == object:
        return [n_bytes_of(batch[i, ...]) for i in range(len(batch))]
    return [batch.nbytes // len(batch)] * len(batch) if len(batch) else []


def stack(rows: Sequence[Array], component: Component) -> Array:
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
        place: tuple[Any, ...] = (i, *map(slice, row.shape), ...)
        batch[place] = row
    return batch

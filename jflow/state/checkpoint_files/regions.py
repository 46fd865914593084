"""Regions of tensors, and reading them from stored arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jflow.base.values import Array

_CHUNK_BYTES = 4 << 20
_ALIGNMENT = 64  # so that JAX on a CPU can use the memory as it is

ReadBytes = Callable[[int, memoryview], None]
"""A function that fills a buffer with the bytes of an array from an offset on."""

ReadRegion = Callable[["TensorBox", Array], None]
"""A function that reads a region of a stored array, relative to its begin, into an array."""


class TensorBox(NamedTuple):
    """A region of a tensor.

    Attributes:
      begin: the first index in each dimension.
      end: the index behind the last one.
    """

    begin: tuple[int, ...]
    end: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the region."""
        return tuple(end - begin for begin, end in zip(*self, strict=True))

    def common(self, other: TensorBox) -> TensorBox | None:
        """Returns the intersection with another region; None if it is empty."""
        begin = tuple(map(max, zip(self.begin, other.begin, strict=True)))
        end = tuple(map(min, zip(self.end, other.end, strict=True)))
        is_empty = any(low >= high for low, high in zip(begin, end, strict=True))
        return None if is_empty else TensorBox(begin, end)

    def within(self, origin: tuple[int, ...]) -> TensorBox:
        """Returns the region relative to another origin."""
        begin, end = (
            tuple(index - first for index, first in zip(corner, origin, strict=True))
            for corner in self
        )
        return TensorBox(begin, end)

    @property
    def index(self) -> Any:
        """The index of an array that gives a view of the region, even if it has no dimensions."""
        return (*map(slice, self.begin, self.end), ...)


def box_of(begin: Sequence[int], shape: Sequence[int]) -> TensorBox:
    """Returns the region of a given shape that begins at an index."""
    return TensorBox(tuple(begin), tuple(map(sum, zip(begin, shape, strict=True))))


def do_overlap(boxes: Iterable[TensorBox]) -> bool:
    """Returns whether any two regions of a tensor overlap."""
    every = [*boxes]
    n_dimensions = len(every[0].begin) if every else 0

    def n_begins(axis: int) -> int:
        return len({box.begin[axis] for box in every})

    # Along this dimension the fewest begin together, so few are compared with each other.
    axis = max(range(n_dimensions), key=n_begins, default=None)
    in_order = every if axis is None else sorted(every, key=lambda box: box.begin[axis])
    for i, box in enumerate(in_order):
        for other in in_order[i + 1 :]:
            if axis is not None and other.begin[axis] >= box.end[axis]:
                break
            if box.common(other) is not None:
                return True
    return False


def read_pieces(
    box: TensorBox, target: Array, pieces: Iterable[tuple[TensorBox, ReadRegion]]
) -> None:
    """Reads a region of a tensor that is stored in pieces.

    Args:
      box: the region.
      target: an array of its shape, with further dimensions behind if the pieces have some.
      pieces: the region of the tensor that each piece is, and what reads from the piece.
    """
    for piece, read in pieces:
        common = box.common(piece)
        if common is not None:
            read(common.within(piece.begin), target[common.within(box.begin).index])


def empty(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
    """Returns an uninitialized array in memory that JAX can use without a copy."""
    n_bytes = math.prod(shape) * dtype.itemsize
    memory = np.empty(n_bytes + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + n_bytes].view(dtype).reshape(shape)


def read_box(
    read: ReadBytes, shape: Sequence[int], box: TensorBox, target: Array, offset: int = 0
) -> None:
    """Reads a region of a stored array, with a few MiB of temporary memory.

    Args:
      read: reads bytes.
      shape: the shape of the array, which is in C order.
      box: the region, not empty.
      target: an array or view of the shape of the region and the dtype of the array.
      offset: where the array begins.
    """
    if not shape:
        read(offset, _bytes_of(target))
        return
    (low, *lows), (high, *highs) = box
    row_bytes = math.prod(shape[1:]) * target.itemsize
    has_whole_rows = not any(lows) and tuple(highs) == tuple(shape[1:])
    inner = TensorBox(tuple(lows), tuple(highs))
    if has_whole_rows and target.flags.c_contiguous:
        read(offset + low * row_bytes, _bytes_of(target))
    elif row_bytes > _CHUNK_BYTES:
        for row in range(low, high):
            read_box(read, shape[1:], inner, target[row - low], offset + row * row_bytes)
    else:
        n_rows = max(1, _CHUNK_BYTES // row_bytes)
        for row in range(low, high, n_rows):
            n = min(n_rows, high - row)
            rows = np.empty((n, *shape[1:]), target.dtype)
            read(offset + row * row_bytes, _bytes_of(rows))
            target[row - low : row - low + n] = rows[(slice(None), *inner.index)]


def _bytes_of(contiguous: Array) -> memoryview:
    return contiguous.reshape(-1).view(np.uint8).data

"""Slices and parts of tensors: the position of a slice, and the part that holds a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any


@dataclass(frozen=True)
class SaveSliceInfo:
    """The position of a slice in the tensor that a checkpoint stores under one name.

    Attributes:
      full_name: the name of the whole tensor.
      full_shape: the shape of the whole tensor.
      var_offset: the first index of the slice in each dimension.
      var_shape: the shape of the slice.
    """

    full_name: str
    full_shape: tuple[int, ...]
    var_offset: tuple[int, ...]
    var_shape: tuple[int, ...]


def assigned_parts(ids: Any, sizes: Sequence[int], strategy: str, xp: Any) -> tuple[Any, Any]:
    """Returns the part of each id and its row there; the number of parts for an id out of range.

    Args:
      ids: signed integers of any shape, an array of NumPy or JAX.
      sizes: the number of rows of each part.
      strategy: "mod": id i is row i // n of part i % n. "div": the parts follow each other.
      xp: the module of the array, `numpy` or `jax.numpy`.
    """
    n = len(sizes)
    if strategy == "mod":
        part, row = ids % n, ids // n
    else:
        starts = xp.asarray([0, *accumulate(sizes[:-1])], ids.dtype)
        part = xp.searchsorted(starts, ids, side="right") - 1
        row = ids - starts[part]
    return xp.where((ids < 0) | (ids >= sum(sizes)), n, part), row

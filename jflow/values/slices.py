"""`SaveSliceInfo`: which slice of a partitioned tensor an array is."""

from __future__ import annotations

from dataclasses import dataclass


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

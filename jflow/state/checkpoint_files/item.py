"""`Item`: one tensor or state that a task saves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jflow.base.values import SaveSliceInfo, logical_shape, type_name
from jflow.errors import InvalidArgumentError
from jflow.state.resources.snapshot import Snapshot


@dataclass(frozen=True, eq=False)
class Item:
    """A tensor, a slice of one, or the state of a resource, to be saved.

    Attributes:
      key: its name in the checkpoint; a slice is stored under the name of the whole tensor.
      array: the value in physical form: an array, or an object with `shape` and `dtype` that NumPy
        converts to one when it is written, such as a JAX array. None for a state.
      dtype: the name of the dtype that programs see, such as "int4" or "key<fry>"; that of the
        array if empty.
      slice: which slice of a partitioned tensor it is; None for a whole tensor.
      state: the snapshot of a queue, an accumulator, a reader or an iterator state.

    Raises:
      InvalidArgumentError: if it is neither one nor the other, or the slice does not fit the array.
    """

    key: str
    array: Any = None
    dtype: str = ""
    slice: SaveSliceInfo | None = None
    state: Snapshot | None = None

    def __post_init__(self) -> None:
        if (self.array is None) == (self.state is None):
            raise InvalidArgumentError(
                f"{self.key!r} must be saved as either an array or a state, got "
                f"{'neither' if self.array is None else 'both'}"
            )
        if self.array is not None and not self.dtype:
            object.__setattr__(self, "dtype", type_name(self.array))
        if self.slice is not None:
            self._check_slice(self.slice)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array as programs see it."""
        return logical_shape(tuple(self.array.shape), self.dtype)

    def _check_slice(self, info: SaveSliceInfo) -> None:
        if self.array is None:
            raise InvalidArgumentError(f"{self.key!r} is a state; only tensors have slices")
        sizes = (info.var_offset, info.var_shape, info.full_shape)
        is_inside = len({*map(len, sizes)}) == 1 and all(
            begin >= 0 and begin + size <= full for begin, size, full in zip(*sizes, strict=True)
        )
        if info.var_shape != self.shape or not is_inside:
            raise InvalidArgumentError(
                f"{self.key!r} cannot be saved as {info}: its shape is {self.shape}"
            )
